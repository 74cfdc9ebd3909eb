#!/usr/bin/env python3
"""Runs bench_ops and the same ops in PyTorch, eager and compiled, and prints one table.

    python3 tools/bench_ops_pytorch.py --build build --json ops.json
"""

import argparse
import json
import pathlib

import torch
import torch._functorch.config
import torch.nn.functional as F

from pytorch_timing import run_bench, seconds_per_call

EPS = 1e-6
VOCAB, HEAD = 8192, 64


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)


def add_norm(norm):
    def call(x, branch, *parameters):
        total = x + branch
        return total, norm(total, *parameters)
    return call


def rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPS)


def layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def swiglu(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def qk_norm_rope(rows, columns):
    """Packed queries and keys of twice as many query heads as key or value heads."""
    kv = columns // (4 * HEAD)
    length = 1024 if rows % 1024 == 0 else rows
    frequencies = 1e6 ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)[:, None, :]
    cos, sin = angles.cos().float().cuda(), angles.sin().float().cuda()

    def rotate(x):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def call(packed, q_weight, k_weight):
        q, k = packed.unflatten(-1, (3 * kv, HEAD)).split([2 * kv, kv], 2)
        return torch.cat([rotate(rms_norm(q, q_weight)), rotate(rms_norm(k, k_weight))], 2)

    return call, [normal(rows // length, length, 3 * kv * HEAD), normal(HEAD), normal(HEAD)]


def ops(rows, columns):
    """Function and inputs by the name in bench_ops."""
    def x():
        return normal(rows, columns)

    def vector():
        return normal(columns)

    targets = torch.randint(columns, (rows,), device="cuda")
    ids = torch.randint(VOCAB, (rows,), device="cuda")
    return {
        "rms_norm": lambda: (rms_norm, [x(), vector()]),
        "layer_norm": lambda: (layer_norm, [x(), vector(), vector()]),
        "add_rms_norm": lambda: (add_norm(rms_norm), [x(), x(), vector()]),
        "add_layer_norm": lambda: (add_norm(layer_norm), [x(), x(), vector(), vector()]),
        "gelu": lambda: (F.gelu, [x()]),
        "gelu_tanh": lambda: (lambda a: F.gelu(a, approximate="tanh"), [x()]),
        "swiglu": lambda: (swiglu, [normal(rows, 2 * columns)]),
        "softmax": lambda: (lambda a: F.softmax(a, -1), [x()]),
        "add_relu": lambda: (lambda a, b: F.relu(a + b), [x(), x()]),
        "cross_entropy": lambda: (
            lambda a: F.cross_entropy(a.float(), targets, reduction="sum"), [x()]),
        "embedding": lambda: (lambda w: F.embedding(ids, w), [normal(VOCAB, columns)]),
        "qk_norm_rope": lambda: qk_norm_rope(rows, columns),
    }


def measure(call, inputs):
    """Seconds of forward and backward."""
    with torch.no_grad():
        forward = seconds_per_call(lambda: call(*inputs))
    outputs = call(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    upstream = [torch.randn_like(y) for y in outputs]
    backward = seconds_per_call(
        lambda: torch.autograd.grad(outputs, inputs, upstream, retain_graph=True))
    return {"forward": forward, "backward": backward}


def measure_adamw(rows, columns):
    """PyTorch's fused optimizer with f32 weights, then the copy to bf16 that bench_ops includes."""
    weight = normal(rows, columns, dtype=torch.float32)
    weight.grad = torch.randn_like(weight)
    rounded = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW([weight], lr=1e-3, fused=True)

    def step():
        optimizer.step()
        rounded.copy_(weight.detach())

    return {"step": seconds_per_call(step)}


def measure_all(rows, columns, names, with_compiled):
    """Seconds by (mode, op, pass)."""
    times = {}
    for name, make in ops(rows, columns).items():
        if name not in names:
            continue
        call, inputs = make()
        modes = {"eager": call}
        if with_compiled:
            torch._dynamo.reset()
            modes["compiled"] = torch.compile(call)
        for mode, function in modes.items():
            for direction, seconds in measure(function, inputs).items():
                times[mode, name, direction] = seconds
    if "adamw" in names:
        for direction, seconds in measure_adamw(rows, columns).items():
            times["eager", "adamw", direction] = seconds
    return times


def print_table(results):
    print(f"copy: xtrain {results['copy_gb_per_s']:.0f} GB/s, "
          f"PyTorch {results['pytorch_copy_gb_per_s']:.0f} GB/s")
    print(f"{'op':16} {'pass':9} {'MB moved':>9} {'xtrain us':>10} {'GB/s':>6} {'of copy':>8} "
          f"{'eager us':>9} {'compiled us':>12}")
    for row in results["ops"]:
        peers = [f"{row[mode]:.1f}" if mode in row else "-" for mode in ("eager_us", "compiled_us")]
        print(f"{row['op']:16} {row['pass']:9} {row['bytes'] / 1e6:9.1f} {row['us']:10.1f} "
              f"{row['gb_per_s']:6.0f} {row['share']:8.1%} {peers[0]:>9} {peers[1]:>12}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="build folder with bin/bench_ops")
    parser.add_argument("--rows", type=int, default=32768)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--no-compiled", action="store_true", help="leave out torch.compile")
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    parser.add_argument("families", nargs="*", help="as for bench_ops")
    o = parser.parse_args()
    # A walked graph is walked again, so what it keeps may not be overwritten.
    torch._functorch.config.donated_buffer = False

    results = run_bench(o.build, "bench_ops", "--rows", str(o.rows), "--columns", str(o.columns),
                        *o.families)
    source = torch.randn(o.rows, o.columns, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    moved = 2 * source.numel() * source.element_size()
    results["pytorch"] = torch.__version__
    results["pytorch_copy_gb_per_s"] = moved / seconds_per_call(lambda: target.copy_(source)) / 1e9
    times = measure_all(o.rows, o.columns, {row["op"] for row in results["ops"]}, not o.no_compiled)
    for row in results["ops"]:
        for mode in ("eager", "compiled"):
            seconds = times.get((mode, row["op"], row["pass"]))
            if seconds is not None:
                row[mode + "_us"] = seconds * 1e6
    print_table(results)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
