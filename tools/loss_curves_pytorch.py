#!/usr/bin/env python3
"""A run of xtrain's `train` in PyTorch: the same weights, batches, schedule and optimizer.

    train ARGUMENT... --print-config >run.json
    python3 tools/loss_curves_pytorch.py init --run run.json --out initial
    train ARGUMENT... --init initial
    python3 tools/loss_curves_pytorch.py train --run run.json --init initial --out pytorch.jsonl

`init` draws fresh weights and writes them as a folder that `train --init` reads. `train` takes the
steps that the config says and writes a line of JSON a step, with the names of metrics.jsonl: step,
loss, val_loss, lr, grad_norm. Masters, gradients' norm and moments are f32; with bf16 the model
computes in it, from weights that are rounded anew each step, which is what xtrain does. Where
xtrain may round products to TF32, so may PyTorch. With --reversed the sequences of each batch come
in reverse order: the same sums, rounded otherwise.
"""

import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

import compare_pytorch
from training_order import TrainingOrder

VOCABULARY_TILE = 64  # products with an odd number of columns are slow
TOKEN_FILE_HEADER = 1024
TOKEN_FILE_MAGIC = 20240520


def refuse(message):
    raise SystemExit(f"loss_curves_pytorch: {message}")


def read_run(path):
    """The sections of a resolved config that this program can follow."""
    run = json.loads(path.read_text())
    model, train, data = run["model"], run["train"], run["data"]
    for section, key, values in ((model, "model_type", ("gpt2", "qwen3")),
                                 (model, "embd_pdrop", (0,)), (model, "resid_pdrop", (0,)),
                                 (model, "attn_pdrop", (0,)), (train, "dtype", ("f32", "bf16")),
                                 (train, "lr_schedule", ("cosine",)),
                                 (train, "grad_accum_steps", (None, 1)),
                                 (train, "total_batch_size", (None,))):
        if section[key] not in values:
            refuse(f"{path}: {key} must be one of {values}; got {section[key]}")
    for key in ("train_files", "val_files"):
        if len(data[key]) != 1:
            refuse(f"{path}: data.{key} must name one file of tokens; got {data[key]}")
    return model, train, data


# --- the initial weights --------------------------------------------------------------------------


def initial_weights(model, seed):
    """Normal numbers, in f32; smaller where a branch is added to the residual stream."""
    generator = torch.Generator().manual_seed(seed)
    std = model["initializer_range"]
    branch_std = std / math.sqrt(2 * model["num_hidden_layers"])
    weights = {}
    for name, shape in compare_pytorch.parameter_shapes(model).items():
        if len(shape) == 1:
            weights[name] = torch.full(shape, 1.0 if name.endswith("norm.weight") else 0.0)
        else:
            adds = name.endswith(("o_proj.weight", "down_proj.weight"))
            weights[name] = torch.randn(shape, generator=generator) * (branch_std if adds else std)
    return weights


def write_initial_weights(o):
    model, train, _ = read_run(o.run)
    o.out.mkdir()
    (o.out / "config.json").write_text(json.dumps({"model": model}, indent=1) + "\n")
    weights = initial_weights(model, train["seed"])
    compare_pytorch.write_safetensors(o.out / "model.safetensors", weights, {"format": "pt"})
    print(f"{sum(w.numel() for w in weights.values())} fresh weights in {o.out}")


# --- the tokens -----------------------------------------------------------------------------------


def read_tokens(path, device):
    data = bytearray(pathlib.Path(path).read_bytes())
    magic, version, count = torch.frombuffer(data, dtype=torch.int32, count=3).tolist()
    if (magic, version) != (TOKEN_FILE_MAGIC, 1):
        refuse(f"{path}: must be a file of uint16 ids as `tokenize` writes it; it begins with "
               f"{magic}, version {version}")
    words = torch.frombuffer(data, dtype=torch.int16, offset=TOKEN_FILE_HEADER, count=count)
    return (words.to(torch.int32) & 0xFFFF).to(device)


class Windows:
    """Batches of windows: inputs and, shifted by one, targets."""

    def __init__(self, path, train, device, is_reversed=False):
        self.tokens = read_tokens(path, device)
        self.is_reversed = is_reversed
        self.batch_size, self.length = train["batch_size"], train["seq_len"]
        self.order = TrainingOrder(len(self.tokens), self.length, train["seed"])
        self.within = torch.arange(self.length + 1, device=device)

    def at(self, starts):
        ids = self.tokens[torch.tensor(starts, device=self.tokens.device)[:, None] + self.within]
        return ids[:, :-1], ids[:, 1:].long()

    def training(self, step):
        first = (step - 1) * self.batch_size
        starts = [self.order.start_of(first + row) for row in range(self.batch_size)]
        return self.at(starts[::-1] if self.is_reversed else starts)

    def validation(self, batches):
        """In the order of the stream; 0 batches: all of it."""
        windows = self.order.windows
        if batches > 0:
            windows = min(windows, batches * self.batch_size)
        for first in range(0, windows, self.batch_size):
            last = min(first + self.batch_size, windows)
            yield self.at([window * self.length for window in range(first, last)])


# --- the training ---------------------------------------------------------------------------------


def learning_rate_at(train, step):
    peak, low, warm_up = train["learning_rate"], train["min_lr_ratio"], train["warmup_steps"]
    if step < warm_up:
        return peak * step / warm_up
    end = train["decay_steps"] or train["max_steps"]
    x = min((step - warm_up) / (end - warm_up), 1.0) if end > warm_up else float(step >= end)
    return peak * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * x)))


class Training:
    def __init__(self, model, train, masters):
        self.model, self.train, self.masters = model, train, masters
        self.dtype = compare_pytorch.DTYPES[train["dtype"]]
        matrices = [w for w in masters.values() if w.dim() > 1]
        vectors = [w for w in masters.values() if w.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": train["weight_decay"]},
             {"params": vectors, "weight_decay": 0.0}],
            lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]),
            eps=train["adam_eps"], fused=True)

    def loss(self, inputs, targets, reduction="mean"):
        weights = {name: w.to(self.dtype) for name, w in self.masters.items()}
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        columns = head.size(0)
        weights["lm_head.weight"] = F.pad(head, (0, 0, 0, -columns % VOCABULARY_TILE))
        logits = compare_pytorch.forward(self.model, weights, inputs, flash=True)[..., :columns]
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(),
                               reduction=reduction)

    def step(self, rate, batch):
        """Loss and norm of the gradient, on the device."""
        loss = self.loss(*batch)
        loss.backward()
        limit = self.train["grad_clip"] or math.inf
        norm = nn.utils.clip_grad_norm_(self.masters.values(), limit)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach(), norm

    @torch.no_grad()
    def validation_loss(self, batches):
        total = count = 0
        for inputs, targets in batches:
            total += self.loss(inputs, targets, "sum").double()
            count += targets.numel()
        return (total / count).item()


def train_steps(o):
    model, train, data = read_run(o.run)
    if train["gemm"] == "library_tf32":
        torch.set_float32_matmul_precision("high")
    weights = compare_pytorch.read_safetensors(o.init / "model.safetensors")
    training = Training(model, train, {name: w.to(o.device).requires_grad_()
                                       for name, w in weights.items()})
    windows = Windows(data["train_files"][0], train, o.device, o.reversed)
    held_out = Windows(data["val_files"][0], train, o.device)
    last, interval, lines = train["max_steps"], train["eval_interval"], []
    start = time.perf_counter()
    for step in range(1, last + 1):
        rate = learning_rate_at(train, step)
        loss, norm = training.step(rate, windows.training(step))
        lines.append({"step": step, "loss": loss, "val_loss": None, "lr": rate, "grad_norm": norm})
        if interval > 0 and (step % interval == 0 or step == last):
            lines[-1]["val_loss"] = training.validation_loss(
                held_out.validation(train["eval_steps"]))
            print(f"step {step}/{last}  loss {loss.item():.4f}  val {lines[-1]['val_loss']:.4f}  "
                  f"{time.perf_counter() - start:.1f} s", flush=True)
    with o.out.open("w") as file:
        for line in lines:  # read here, so that the host waits for no step
            line.update(loss=line["loss"].item(), grad_norm=line["grad_norm"].item())
            file.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    for name, program in (("init", write_initial_weights), ("train", train_steps)):
        command = commands.add_parser(name)
        command.add_argument("--run", type=pathlib.Path, required=True,
                             help="what train --print-config has printed")
        command.add_argument("--out", type=pathlib.Path, required=True)
        command.set_defaults(program=program)
    command.add_argument("--init", type=pathlib.Path, required=True, help="what init has written")
    command.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    command.add_argument("--reversed", action="store_true",
                         help="the sequences of each batch in reverse order")
    o = parser.parse_args()
    if "device" in o:
        print(f"PyTorch {torch.__version__}", flush=True)
    o.program(o)


if __name__ == "__main__":
    main()
