#!/usr/bin/env python3
"""Runs bench_attention and PyTorch's attention kernels and prints one table, in TFLOP/s.

    python3 tools/bench_attention_pytorch.py --build build --json attention.json
    python3 tools/bench_attention_pytorch.py --build build -- --head-dims 64 --masks causal

What stands behind -- goes to bench_attention. Of xtrain: flash attention; portable, its kernels for
GPUs without wgmma; composed attention. Of PyTorch, each in the faster of the layouts [B, T, H, D] and
[B, H, T, D]: FlashAttention-2, whose backward adds in no fixed order unless deterministic algorithms
are asked for, and cuDNN's kernels, which have no deterministic backward. Ratios are flash attention
by the peer. Without PyTorch there are no peers.
"""

import argparse
import json
import pathlib

from pytorch_timing import run_bench, seconds_per_call, torch

if torch:
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"fa2": "FlashAttention-2", "fa2_ordered": "FA2, ordered", "cudnn": "cuDNN"}


def operations_of(row):
    """Products of what is visible, forward; backward has 2.5 times as many."""
    pairs = row["length"] ** 2 * (0.5 if row["mask"] == "causal" else 1)
    return 4 * row["batch"] * row["heads"] * row["head_dim"] * pairs


def tensor(row, layout, heads):
    """Seen as [B, H, T, D], which scaled_dot_product_attention takes."""
    batch, length, dim = (row[k] for k in ("batch", "length", "head_dim"))
    shape = (batch, length, heads, dim) if layout == "BTHD" else (batch, heads, length, dim)
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    return x.transpose(1, 2) if layout == "BTHD" else x


def seconds_of(row, backend, layout, backward_only):
    """Forward and backward; forward is infinite where only backward was to be timed."""
    q, k, v, upstream = (tensor(row, layout, row[heads])
                         for heads in ("heads", "kv_heads", "kv_heads", "heads"))
    inputs = [x.requires_grad_() for x in (q, k, v)]

    def forward():
        return F.scaled_dot_product_attention(*inputs, is_causal=row["mask"] == "causal",
                                              enable_gqa=row["heads"] != row["kv_heads"])

    with sdpa_kernel(backend):
        forward_seconds = float("inf")
        if not backward_only:
            with torch.no_grad():
                forward_seconds = seconds_per_call(forward)
        y = forward()
    return forward_seconds, seconds_per_call(
        lambda: torch.autograd.grad(y, inputs, upstream, retain_graph=True))


def rates_of(row, backend, ordered=False):
    """TFLOP/s of the faster layout; None where the backend refuses."""
    torch.use_deterministic_algorithms(ordered)
    try:
        both = [seconds_of(row, backend, layout, ordered) for layout in ("BTHD", "BHTD")]
    except RuntimeError:
        return None
    finally:
        torch.use_deterministic_algorithms(False)
    forward, backward = (min(seconds) for seconds in zip(*both))
    operations = operations_of(row) / 1e12
    return {"forward": None if ordered else operations / forward,
            "backward": 2.5 * operations / backward}


def add_peers(results):
    # Deterministic algorithms would also fill fresh memory, which is no part of the kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False
    results["pytorch"] = torch.__version__
    results["cudnn_version"] = torch.backends.cudnn.version()
    results["gpu"] = torch.cuda.get_device_name()
    for row in results["rows"]:
        row["fa2"] = rates_of(row, SDPBackend.FLASH_ATTENTION)
        row["fa2_ordered"] = rates_of(row, SDPBackend.FLASH_ATTENTION, ordered=True)
        row["cudnn"] = rates_of(row, SDPBackend.CUDNN_ATTENTION)


def cells_of(row, direction):
    """Flash attention, then each other way and the ratio to it."""
    mine, cells = row["flash"][direction], [f"{row['flash'][direction]:.0f}"]
    for name in ("portable", "composed", *PEERS):
        rate = (row.get(name) or {}).get(direction)
        cells += [f"{rate:.0f}", f"{mine / rate:.2f}"] if rate else ["-", "-"]
    return cells


def print_table(results):
    names = ["flash"] + [cell for name in ("portable", "composed", *PEERS.values())
                         for cell in (name, "ratio")]
    for direction in ("forward", "backward"):
        lines = [["D", "T", "mask", *names]]
        lines += [[str(row["head_dim"]), str(row["length"]), row["mask"], *cells_of(row, direction)]
                  for row in results["rows"]]
        widths = [max(map(len, column)) for column in zip(*lines)]
        print(f"{direction}, TFLOP/s")
        for line in lines:
            print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)))
    print(f"{results['runs']} runs gave {'the same' if results['same_bits'] else 'DIFFERENT'} bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="build folder with bin/bench_attention")
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    parser.add_argument("arguments", nargs="*", help="for bench_attention, behind --")
    o = parser.parse_args()
    results = run_bench(o.build, "bench_attention", *o.arguments)
    if torch:
        add_peers(results)
    print_table(results)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
