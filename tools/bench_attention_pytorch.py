#!/usr/bin/env python3
"""Runs bench_attention and PyTorch's attention kernels and prints one table, in TFLOP/s.

    python3 tools/bench_attention_pytorch.py --build build --json attention.json

mma is xtrain on GPUs without wgmma. PyTorch's kernels are FlashAttention-2, whose
backward adds in no fixed order unless deterministic algorithms are asked for, and cuDNN's, which
has no deterministic backward.
"""

import argparse
import json
import pathlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytorch_timing import run_bench, seconds_per_call


def measure(row, backend, deterministic=False):
    """Forward and backward TFLOP/s of a backend; None where it refuses."""
    batch, length, heads, dim = (row[k] for k in ("batch", "length", "heads", "head_dim"))
    forward_operations = 2 * batch * heads * length * length * dim

    def tensor():
        x = torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16)
        return x.transpose(1, 2)

    inputs, upstream = [tensor().requires_grad_() for _ in range(3)], tensor()
    torch.use_deterministic_algorithms(deterministic)
    try:
        with sdpa_kernel(backend):
            with torch.no_grad():
                forward = seconds_per_call(
                    lambda: F.scaled_dot_product_attention(*inputs, is_causal=True))
            y = F.scaled_dot_product_attention(*inputs, is_causal=True)
            backward = seconds_per_call(
                lambda: torch.autograd.grad(y, inputs, upstream, retain_graph=True))
    except RuntimeError:
        return None, None
    finally:
        torch.use_deterministic_algorithms(False)
    return forward_operations / forward / 1e12, 2.5 * forward_operations / backward / 1e12


def add_peers(row):
    row["fa2_forward"], row["fa2_backward"] = measure(row, SDPBackend.FLASH_ATTENTION)
    _, row["fa2_ordered_backward"] = measure(row, SDPBackend.FLASH_ATTENTION, deterministic=True)
    row["cudnn_forward"], row["cudnn_backward"] = measure(row, SDPBackend.CUDNN_ATTENTION)


def print_table(results):
    print(f"{'D':>4} {'T':>6} {'forward':>8} {'mma':>6} {'FA2':>6} {'ratio':>6} {'cuDNN':>6} "
          f"{'ratio':>6}   {'backward':>8} {'mma':>6} {'FA2':>6} {'ratio':>6} {'ordered':>8} "
          f"{'ratio':>6} {'cuDNN':>6} {'ratio':>6}")

    def number(x, width, digits=0):
        return f"{x:{width}.{digits}f}" if x is not None else f"{'-':>{width}}"

    def ratio(x, peer):
        return number(x / peer if peer else None, 6, 2)

    for row in results["rows"]:
        forward, backward = row["forward_tflops"], row["backward_tflops"]
        print(f"{row['head_dim']:4} {row['length']:6} {forward:8.0f} "
              f"{number(row['portable_forward_tflops'], 6)} "
              f"{number(row['fa2_forward'], 6)} {ratio(forward, row['fa2_forward'])} "
              f"{number(row['cudnn_forward'], 6)} {ratio(forward, row['cudnn_forward'])}   "
              f"{backward:8.0f} {number(row['portable_backward_tflops'], 6)} "
              f"{number(row['fa2_backward'], 6)} {ratio(backward, row['fa2_backward'])} "
              f"{number(row['fa2_ordered_backward'], 8)} "
              f"{ratio(backward, row['fa2_ordered_backward'])} "
              f"{number(row['cudnn_backward'], 6)} {ratio(backward, row['cudnn_backward'])}")
    print(f"{results['runs']} runs gave {'the same' if results['same_bits'] else 'DIFFERENT'} bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="build folder with bin/bench_attention")
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    o = parser.parse_args()
    # Deterministic algorithms would also fill fresh memory, which is no part of the kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False
    results = run_bench(o.build, "bench_attention")
    results["pytorch"] = torch.__version__
    for row in results["rows"]:
        add_peers(row)
    print_table(results)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
