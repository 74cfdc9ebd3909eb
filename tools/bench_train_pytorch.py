#!/usr/bin/env python3
"""Times training steps of a config's model in PyTorch, as bench_train times those of xtrain.

    python3 tools/bench_train_pytorch.py --config configs/gpt2_124m.json --batch 32x1024
    python3 tools/bench_train_pytorch.py --device cpu --modes default,eager

The model is the config's (gpt2, llama, qwen2 or qwen3) in the form that PyTorch runs fastest:
packed projections, scaled_dot_product_attention with the backend that PyTorch prefers,
torch.compile, the fused AdamW, the gradient's norm clipped, a vocabulary rounded up to whole tiles
on a GPU. bf16 is autocast over f32 weights, as in xtrain, or with --pure weights and moments in
bf16. Modes are those of torch.compile (reduce-overhead and max-autotune use CUDA graphs), or eager.

One line of JSON is printed, a list of one object a mode. With --rounds the program prints "ready"
when all has warmed up, and then such a line for each line that it reads, so that other programs can
be timed in between.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY_TILE = 64


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def norm_of(c, width):
    return nn.LayerNorm(width, c.eps) if c.is_gpt2 else RMSNorm(width, c.eps)


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.qkv = nn.Linear(c.width, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=c.qkv_bias)
        self.out = nn.Linear(c.heads * c.head_dim, c.width, bias=c.is_gpt2)
        if c.qk_norm:
            self.q_norm, self.k_norm = (RMSNorm(c.head_dim, c.eps) for _ in range(2))

    def forward(self, x, cos, sin):
        c = self.c
        q, k, v = (self.qkv(x).unflatten(-1, (-1, c.head_dim))
                   .split([c.heads, c.kv_heads, c.kv_heads], 2))
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if not c.is_gpt2:
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=c.heads != c.kv_heads)
        return self.out(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.is_gpt2 = c.is_gpt2
        self.up = nn.Linear(c.width, c.inner * (1 if c.is_gpt2 else 2), bias=c.is_gpt2)
        self.down = nn.Linear(c.inner, c.width, bias=c.is_gpt2)

    def forward(self, x):
        if self.is_gpt2:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norms = nn.ModuleList(norm_of(c, c.width) for _ in range(2))
        self.attention, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norms[0](x), cos, sin)
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab, c.width)
        self.positions = nn.Embedding(length, c.width) if c.is_gpt2 else None
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = norm_of(c, c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        if c.tied:
            self.head.weight = self.embedding.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        frequencies = c.rope_theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
        angles = torch.outer(torch.arange(length), frequencies)[:, None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.half = c.half

    def forward(self, ids, targets):
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        if self.half:
            x = x.bfloat16()
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def model_of(config, device, dtype):
    """The sizes of a config's model, with xtrain's defaults for what it leaves out."""
    m = config["model"]
    kind, width, heads = m["model_type"], m["hidden_size"], m["num_attention_heads"]
    if kind not in ("gpt2", "llama", "qwen2", "qwen3"):
        raise SystemExit(f"bench_train_pytorch: model_type must be gpt2, llama, qwen2 or qwen3; "
                         f"got {kind}")
    tile = VOCABULARY_TILE if device == "cuda" else 1
    usual_inner = 4 * width if kind == "gpt2" else -(-(width * 8 // 3) // 64) * 64
    return argparse.Namespace(
        is_gpt2=kind == "gpt2", width=width, heads=heads, layers=m["num_hidden_layers"],
        kv_heads=m.get("num_key_value_heads", heads), head_dim=m.get("head_dim", width // heads),
        inner=m.get("intermediate_size", usual_inner), vocab=-(-m["vocab_size"] // tile) * tile,
        eps=m.get("rms_norm_eps", 1e-5 if kind == "gpt2" else 1e-6),
        rope_theta=m.get("rope_theta", 1e4), qk_norm=m.get("qk_norm", kind == "qwen3"),
        qkv_bias=m.get("attention_bias", kind in ("gpt2", "qwen2")),
        tied=m.get("tie_word_embeddings", kind == "gpt2"), half=dtype == "bf16")


class Training:
    """A model in one mode with what it is trained by."""

    def __init__(self, o, config, mode):
        torch.manual_seed(1)
        self.o, self.mode, self.is_gpu = o, mode, o.device == "cuda"
        c = model_of(config, o.device, o.dtype)
        self.model = Transformer(c, o.length).to(o.device)
        if o.pure:
            self.model = self.model.bfloat16()
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.loss_of = self.model
        if mode != "eager":
            self.loss_of = torch.compile(self.model, mode=None if mode == "default" else mode)
        shape = (8, o.batch, o.length + 1)
        tokens = torch.randint(config["model"]["vocab_size"], shape, device=o.device)
        self.tokens = itertools.cycle((ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
                                      for ids in tokens)
        self.loss = None
        for _ in range(o.warm_up):
            self.step()
        if self.is_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def step(self):
        autocast = self.o.dtype == "bf16" and not self.o.pure
        for _ in range(self.o.accumulate):
            if self.mode in ("reduce-overhead", "max-autotune"):
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.o.device, torch.bfloat16, enabled=autocast):
                loss = self.loss_of(*next(self.tokens)) / self.o.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()

    def step_times(self):
        """Milliseconds of each step. On a GPU nothing waits between them."""
        if not self.is_gpu:
            times = []
            for _ in range(self.o.steps):
                start = time.perf_counter()
                self.step()
                times.append(1e3 * (time.perf_counter() - start))
            return times
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self.o.steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.step()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]

    def result(self):
        o, times = self.o, self.step_times()
        ms = statistics.median(times)
        return {"program": "pytorch", "version": torch.__version__, "mode": self.mode,
                "model": pathlib.Path(o.config).stem,
                "device": torch.cuda.get_device_name() if self.is_gpu else "cpu",
                "parameters": sum(p.numel() for p in self.model.parameters()),
                "batch": o.batch, "seq_len": o.length, "accumulate": o.accumulate,
                "dtype": "pure bf16" if o.pure else o.dtype, "steps": o.steps, "ms": ms,
                "fastest_ms": min(times), "slowest_ms": max(times),
                "tokens_per_s": 1e3 * o.batch * o.length * o.accumulate / ms,
                "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if self.is_gpu else None,
                "loss": self.loss.item() * o.accumulate}


def batch_size(text):
    rows, _, length = text.partition("x")
    if not (rows.isdigit() and length.isdigit() and int(rows) > 0 and int(length) > 0):
        raise argparse.ArgumentTypeError(f"must be sequences x tokens, such as 8x1024; got {text}")
    return int(rows), int(length)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="configs/tiny.json")
    parser.add_argument("--batch", type=batch_size, help="as 8x1024; the config's by default")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--pure", action="store_true", help="weights and moments in bf16 too")
    parser.add_argument("--modes", default="default", help="comma separated; eager: not compiled")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--rounds", action="store_true", help="measure for each line that comes in")
    o = parser.parse_args()
    if o.pure and o.dtype != "bf16":
        parser.error("--pure needs --dtype bf16")
    return o


def main():
    o = parse_arguments()
    config = json.loads(pathlib.Path(o.config).read_text())
    train = config["train"]
    o.batch, o.length = o.batch or (train["batch_size"], train["seq_len"])
    if o.threads > 0:
        torch.set_num_threads(o.threads)
    torch.set_float32_matmul_precision("high")
    trainings = [Training(o, config, mode) for mode in o.modes.split(",")]
    if o.rounds:
        print("ready", flush=True)
    for _ in sys.stdin if o.rounds else [None]:
        print(json.dumps([t.result() for t in trainings]), flush=True)


if __name__ == "__main__":
    main()
