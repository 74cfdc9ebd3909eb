#!/usr/bin/env python3
"""Trains xtrain's models with PyTorch's DistributedDataParallel and takes the time of a step.

    torchrun --standalone --nproc-per-node 2 tools/bench_ddp_pytorch.py \\
        --model gpt2 configs/gpt2_124m.json 32 --json result.json

Weights are f32 and products bf16 (autocast) on GPUs, all is f32 on CPUs. Optimizer, clipping and
sizes are those of xtrain's run; tokens are random.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import compare_pytorch


def model_of(path):
    """The model's section with what it leaves to defaults, and the length of a sequence."""
    config = json.loads(pathlib.Path(path).read_text())
    given = config["model"]
    width, heads = given["hidden_size"], given["num_attention_heads"]
    gpt2 = given["model_type"] == "gpt2"
    model = {"num_key_value_heads": heads, "head_dim": width // heads,
             "intermediate_size": 4 * width, "rms_norm_eps": 1e-5 if gpt2 else 1e-6,
             "rope_theta": 1e6, "tie_word_embeddings": gpt2, **given}
    # Products with an odd number of words are slow.
    model["vocab_size"] = -(-model["vocab_size"] // 64) * 64
    return model, config["train"].get("seq_len", given["max_position_embeddings"])


class Model(torch.nn.Module):
    """compare_pytorch's model as a module; its loss is the mean over all tokens."""

    def __init__(self, config, length, device):
        super().__init__()
        self.config = config
        shapes = compare_pytorch.parameter_shapes(config)
        self.names = sorted(shapes)
        self.weights = torch.nn.ParameterList(
            torch.ones(shapes[name], device=device) if name.endswith("norm.weight")
            else 0.02 * torch.randn(shapes[name], device=device) for name in self.names)
        self.table = compare_pytorch.rope_table(config, length, torch.float32, device) \
            if config["model_type"] != "gpt2" else None

    def forward(self, inputs, targets):
        weights = dict(zip(self.names, self.weights))
        logits = compare_pytorch.forward(self.config, weights, inputs, True, self.table)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def seconds_of_steps(model, optimizer, inputs, targets, steps, gpu):
    precision = torch.autocast("cuda", torch.bfloat16) if gpu else contextlib.nullcontext()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(name, path, rows, steps, device):
    config, length = model_of(path)
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    model = Model(config, length, device)
    if dist.get_world_size() > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    tokens = torch.randint(config["vocab_size"], (rows, length + 1), generator=generator)
    inputs, targets = tokens[:, :-1].to(device), tokens[:, 1:].contiguous().to(device)
    seconds = seconds_of_steps(model, optimizer, inputs, targets, steps, gpu)
    later = statistics.median(seconds[steps // 3:])
    return {"model": name, "tokens_per_s": rows * length * dist.get_world_size() / later,
            "step_ms": 1e3 * later,
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if gpu else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", nargs=3, action="append", required=True,
                        metavar=("NAME", "CONFIG", "ROWS"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--json", metavar="FILE", required=True, help="write the results here")
    o = parser.parse_args()
    gpu = o.device == "cuda"
    device = torch.device(o.device, int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    else:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local))
    dist.init_process_group("nccl" if gpu else "gloo")
    rows = [measure(name, path, int(count), o.steps, device) for name, path, count in o.model]
    if dist.get_rank() == 0:
        result = {"pytorch": torch.__version__, "device": o.device, "rows": rows}
        pathlib.Path(o.json).write_text(json.dumps(result, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
