#!/usr/bin/env python3
"""Trains the model of a config in PyTorch on the CPU, on random tokens, and prints how long steps take.

    python3 tools/train_pytorch.py --config configs/tiny.json --steps 40 --threads 2 --compiled
    python3 tools/train_pytorch.py --config configs/tiny.json --threads 2 --products

The model is that of `train`: the same shapes, RMSNorm, norm and rotation of queries and keys, causal
attention, SwiGLU and tied embedding in f32, the gradient's norm clipped, AdamW. It is written as
PyTorch is fastest on a CPU: packed projections, scaled_dot_product_attention, the fused AdamW. With
--products only the matrix products of a step's linear layers run, each timed by itself: the time
that a step cannot go below with PyTorch's BLAS.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 8
PRODUCT_ROUNDS = 50


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.head_dim = c["num_attention_heads"], c["head_dim"]
        width, inner, eps = c["hidden_size"], c["intermediate_size"], c["rms_norm_eps"]
        mixed = self.heads * self.head_dim
        self.attention_norm, self.mlp_norm = Norm(width, eps), Norm(width, eps)
        self.q_norm, self.k_norm = Norm(self.head_dim, eps), Norm(self.head_dim, eps)
        self.qkv = nn.Linear(width, 3 * mixed, bias=False)
        self.out = nn.Linear(mixed, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).transpose(1, 2)

        packed = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = packed.unbind(2)
        mixed = F.scaled_dot_product_attention(rotate(self.q_norm(q)), rotate(self.k_norm(k)),
                                               v.transpose(1, 2), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        self.embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        frequencies = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angles = torch.outer(torch.arange(length), frequencies)[:, None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def config_of(path):
    """The two sections of a config; what a Qwen3 model leaves out has the defaults of xtrain."""
    config = json.loads(pathlib.Path(path).read_text())
    model, train = {"rms_norm_eps": 1e-6, "rope_theta": 1e4} | config["model"], config["train"]
    same = model["num_attention_heads"] == model["num_key_value_heads"]
    if model["model_type"] != "qwen3" or not same or not model["tie_word_embeddings"]:
        raise SystemExit(f"{path}: the twin knows qwen3 with tied embeddings and a key head for each "
                         "query head; choose another config, or extend tools/train_pytorch.py")
    return model, train


def steps(model, train, count, compiled):
    """Seconds and CPU seconds of each of `count` training steps."""
    torch.manual_seed(1)
    batch, length = train["batch_size"], train["seq_len"]
    net = Transformer(model, length)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": train["weight_decay"]},
         {"params": vectors, "weight_decay": 0.0}],
        lr=train["learning_rate"], betas=(0.9, train["beta2"]), fused=True)
    loss_of = torch.compile(net) if compiled else net
    tokens = torch.randint(model["vocab_size"], (WARM_UP + count, batch, length + 1))
    times = []
    for ids in tokens:
        inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        start, cpu = time.perf_counter(), time.process_time()
        loss_of(inputs, targets).backward()
        nn.utils.clip_grad_norm_(net.parameters(), train["grad_clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    return times[WARM_UP:]


def products(model, train):
    """The products of a step's linear layers as (times, m, n, k, operands), forward and backward."""
    rows = train["batch_size"] * train["seq_len"]
    width, inner = model["hidden_size"], model["intermediate_size"]
    mixed, layers = model["num_attention_heads"] * model["head_dim"], model["num_hidden_layers"]
    weights = [(layers, 3 * mixed, width), (layers, width, mixed), (layers, 2 * inner, width),
               (layers, width, inner), (1, model["vocab_size"], width)]
    for times, out, into in weights:
        yield times, rows, out, into, lambda x, dy, w: (x, w.t())
        yield times, rows, out, into, lambda x, dy, w: (dy, w)
        yield times, rows, out, into, lambda x, dy, w: (dy.t(), x)


def seconds_of_products(model, train):
    total = flop = 0.0
    for times, rows, out, into, operands in products(model, train):
        a, b = operands(torch.randn(rows, into), torch.randn(rows, out), torch.randn(out, into))
        c = torch.empty(a.shape[0], b.shape[1])
        taken = []
        for _ in range(PRODUCT_ROUNDS):
            start = time.perf_counter()
            torch.mm(a, b, out=c)
            taken.append(time.perf_counter() - start)
        total += times * min(taken)
        flop += times * 2.0 * rows * out * into
    return total, flop


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/tiny.json")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--products", action="store_true")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    model, train = config_of(o.config)
    result = {"pytorch": torch.__version__}
    if o.products:
        seconds, flop = seconds_of_products(model, train)
        result |= {"ms": 1e3 * seconds, "gflops": 1e-9 * flop / seconds}
    else:
        wall, cpu = zip(*steps(model, train, o.steps, o.compiled))
        result |= {"ms": 1e3 * statistics.median(wall), "cpu_ms": 1e3 * statistics.median(cpu)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
