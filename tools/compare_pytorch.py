#!/usr/bin/env python3
"""Compares xtrain's models with the same models in PyTorch: logits, loss and every gradient.

    python3 tools/compare_pytorch.py --build build --device cuda --json comparison.json
    python3 tools/compare_pytorch.py --write-golden tests/golden

Each model is written down here a second time, from PyTorch's own functions. Both sides read the same
random weights and tokens: PyTorch in float64 (the reference) and in the dtype under test, xtrain
through its program model_values. Errors are those of

    loss       |x - reference| / |reference|
    logits     the largest |x - reference|; in bf16 the mean and the 99th percentile
    gradients  the largest |x - reference| of a tensor / its largest |reference|, of the worst tensor;
               in bf16 the mean |x - reference| of all elements / the mean |reference|
    peer       xtrain's mean error / PyTorch's own in the same dtype, of the worst tensor

Exit code 0: everything is within its limit; 1: something is not.
"""

import argparse
import concurrent.futures
import copy
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
IGNORED = -100  # a target that does not count

QWEN3 = dict(
    model_type="qwen3", vocab_size=259, hidden_size=128, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=352,
    max_position_embeddings=128, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=False)
GPT2 = dict(
    model_type="gpt2", vocab_size=259, hidden_size=128, num_hidden_layers=4,
    num_attention_heads=2, num_key_value_heads=2, head_dim=64, intermediate_size=512,
    max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True)
# The models of tests/golden in what differs from the ones above.
SMALL = dict(vocab_size=37, hidden_size=24, num_hidden_layers=2, head_dim=8, intermediate_size=20,
             max_position_embeddings=16)

# Largest errors against float64, and of flash against composed attention.
REFERENCE_LIMITS = {
    "f64": {"loss": 1e-14, "logits": 1e-13, "gradients": 1e-12},
    "f32": {"loss": 2e-7, "logits": 8e-6, "gradients": 1e-5, "peer": 1.5},
    "bf16": {"loss": 1.5e-4, "logits mean": 1.6e-3, "logits 99%": 5.9e-3, "gradients mean": 1.2e-2,
             "peer": 1.5},
}
FLASH_LIMITS = {
    "f64": {"loss": 1e-14, "logits": 1e-13, "gradients": 1e-12},
    "f32": {"loss": 1e-6, "logits": 1.7e-4, "gradients": 4e-5},
    "bf16": {"loss": 1.5e-4, "logits mean": 1.6e-3, "logits 99%": 5.9e-3, "gradients mean": 1.2e-2},
}
DEVICE_LIMITS = {"logits": 2e-6}  # of the GPU against the CPU, f32


# --- the models ---------------------------------------------------------------------------------


def parameter_shapes(c):
    """Shape and the standard deviation of fresh weights by xtrain's name."""
    width, inner, heads, kv, d = (c["hidden_size"], c["intermediate_size"],
                                  c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
    gpt2 = c["model_type"] == "gpt2"
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], width)}
    if gpt2:
        shapes["model.embed_positions.weight"] = (c["max_position_embeddings"], width)
    projections = {
        "self_attn.qkv_proj": ((heads + 2 * kv) * d, width),
        "self_attn.o_proj": (width, heads * d),
        "mlp.up_proj" if gpt2 else "mlp.gate_up_proj": (inner if gpt2 else 2 * inner, width),
        "mlp.down_proj": (width, inner),
    }
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[layer + name + ".weight"] = (width,)
        if not gpt2:
            shapes[layer + "self_attn.q_norm.weight"] = (d,)
            shapes[layer + "self_attn.k_norm.weight"] = (d,)
        for name, shape in projections.items():
            shapes[layer + name + ".weight"] = shape
            if gpt2:
                shapes[layer + name + ".bias"] = shape[:1]
    shapes["model.norm.weight"] = (width,)
    if gpt2:
        for name in [n for n in shapes if n.endswith("norm.weight")]:
            shapes[name.replace(".weight", ".bias")] = (width,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], width)
    return shapes


def random_weights(c, std, seed):
    """Every parameter away from the value at which its gradient or effect would be special."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in sorted(parameter_shapes(c).items()):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        is_norm_weight = name.endswith("norm.weight")
        weights[name] = (1 + 0.1 * x if is_norm_weight else std * x).float()
    return weights


def random_batch(c, rows, length, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(c["vocab_size"], (rows, length), generator=generator, dtype=torch.int32)
    targets = torch.randint(c["vocab_size"], (rows, length), generator=generator, dtype=torch.int32)
    targets[torch.rand(rows, length, generator=generator) < 0.1] = IGNORED
    return inputs, targets


def wide(dtype):
    """The dtype of statistics."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def rope_table(c, length, dtype, device):
    """cos and sin [T, 1, D/2] of position times theta^(-2i/D), formed in float64."""
    d = c["head_dim"]
    frequencies = c["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)[:, None, :]
    return angles.cos().to(device, wide(dtype)), angles.sin().to(device, wide(dtype))


def rotate(x, table):
    """x [B, T, H, D]: elements i and i + D/2 are a pair."""
    cos, sin = table
    a, b = x.to(cos.dtype).chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def attention(q, k, v, flash):
    """[B, T, H, D] and [B, T, KV, D], causal within each row of the batch."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if flash:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=k.size(1) != q.size(1))
    else:
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
        length = q.size(2)
        hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * q.size(-1) ** -0.5).masked_fill(hidden, -math.inf)
        y = torch.softmax(scores.to(wide(q.dtype)), -1).to(q.dtype) @ v
    return y.transpose(1, 2).flatten(2)


def forward(c, weights, inputs, flash, table=None):
    """Logits [B, T, V] from weights by name; `table` is what rope_table gives, if it is there."""
    gpt2 = c["model_type"] == "gpt2"
    heads, kv, d, eps = (c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"],
                         c["rms_norm_eps"])

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))

    def norm(x, name):
        weight = weights[name + ".weight"]
        if gpt2:
            return F.layer_norm(x, weight.shape, weight, weights[name + ".bias"], eps)
        return F.rms_norm(x, weight.shape, weight, eps)

    def mlp(x, name):
        if gpt2:
            hidden = F.gelu(linear(x, name + ".up_proj"), approximate="tanh")
        else:
            gate, up = linear(x, name + ".gate_up_proj").chunk(2, -1)
            hidden = F.silu(gate) * up
        return linear(hidden, name + ".down_proj")

    def self_attention(x, name):
        packed = linear(x, name + ".qkv_proj").unflatten(-1, (heads + 2 * kv, d))
        q, k, v = packed.split([heads, kv, kv], 2)
        if not gpt2:
            q = rotate(norm(q, name + ".q_norm"), table)
            k = rotate(norm(k, name + ".k_norm"), table)
        return linear(attention(q, k, v, flash), name + ".o_proj")

    embedding = weights["model.embed_tokens.weight"]
    x = F.embedding(inputs.long(), embedding)
    if gpt2:
        x = x + weights["model.embed_positions.weight"][: inputs.size(1)]
    else:
        table = table or rope_table(c, inputs.size(1), x.dtype, x.device)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        x = x + self_attention(norm(x, layer + "input_layernorm"), layer + "self_attn")
        x = x + mlp(norm(x, layer + "post_attention_layernorm"), layer + "mlp")
    return F.linear(norm(x, "model.norm"), weights.get("lm_head.weight", embedding))


class Case:
    """A model, its weights and a batch."""

    def __init__(self, name, config, std, rows, length, seed):
        self.name, self.config = name, config
        self.weights = random_weights(config, std, seed)
        self.inputs, self.targets = random_batch(config, rows, length, seed + 1)

    def rounded(self, dtype):
        """The same with weights that the dtype holds exactly."""
        other = copy.copy(self)
        other.weights = {name: w.to(dtype).to(w.dtype) for name, w in self.weights.items()}
        return other

    def write(self, path, more=()):
        tensors = {"inputs": self.inputs, "targets": self.targets, **self.weights, **dict(more)}
        write_safetensors(path, tensors, {"config": json.dumps({"model": self.config})})


def pytorch_results(case, dtype, device, flash):
    """What model_values writes, from PyTorch."""
    weights = {name: w.detach().to(device, dtype).requires_grad_() for name, w in case.weights.items()}
    logits = forward(case.config, weights, case.inputs.to(device), flash)
    loss = F.cross_entropy(logits.flatten(0, 1).to(wide(dtype)),
                           case.targets.flatten().long().to(device), ignore_index=IGNORED,
                           reduction="sum")
    loss.backward()
    results = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    results.update({"grad." + name: w.grad for name, w in weights.items()})
    return {name: x.double().cpu() for name, x in results.items()}


# --- the file format ----------------------------------------------------------------------------

FORMAT = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}


def write_safetensors(path, tensors, metadata):
    header, begin = {"__metadata__": metadata}, 0
    for name, x in tensors.items():
        end = begin + x.numel() * x.element_size()
        header[name] = {"dtype": FORMAT[x.dtype], "shape": list(x.shape),
                        "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(x.contiguous().numpy().tobytes())


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8: 8 + length])
    header.pop("__metadata__", None)
    dtypes = {name: dtype for dtype, name in FORMAT.items()}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=dtypes[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


# --- the comparison -----------------------------------------------------------------------------


def xtrain_results(program, case, dtype, device, flash):
    with tempfile.TemporaryDirectory() as folder:
        given, made = os.path.join(folder, "case"), os.path.join(folder, "values")
        case.write(given)
        command = [program, given, "--output", made, "--device", device, "--dtype", dtype,
                   "--threads", "1"]
        subprocess.run(command + (["--flash"] if flash else []), check=True)
        return read_safetensors(made)


def differences(results, reference):
    """By the names that the limits have."""
    gradients = [name for name in reference if name.startswith("grad.")]
    off = {name: (results[name] - x).abs() for name, x in reference.items()}
    size = {name: x.abs() for name, x in reference.items()}
    return {
        "loss": (off["loss"] / size["loss"]).item(),
        "logits": off["logits"].max().item(),
        "logits mean": off["logits"].mean().item(),
        "logits 99%": off["logits"].flatten().quantile(0.99).item(),
        "gradients": max((off[g].max() / size[g].max()).item() for g in gradients),
        "gradients mean": (sum(off[g].sum() for g in gradients)
                           / sum(size[g].sum() for g in gradients)).item(),
    }


def peer_ratio(results, peer, reference):
    """The loss is left out: the error of one number is a matter of chance."""
    def error(x, name):
        return (x[name] - reference[name]).abs().mean().item()
    return max(error(results, name) / error(peer, name) for name in reference if name != "loss")


class Report:
    def __init__(self):
        self.rows = []

    def add(self, limits, errors, **labels):
        for quantity, limit in limits.items():
            value = errors[quantity]
            ok = value <= limit  # not so for NaN
            self.rows.append({**labels, "quantity": quantity, "value": value, "limit": limit,
                              "ok": ok})
            print(f"{labels['model']:6} {labels['dtype']:5} {labels['what']:34} {quantity:15} "
                  f"{value:10.2e} {limit:9.1e}  {'ok' if ok else 'FAIL'}", flush=True)

    def ok(self):
        return all(row["ok"] for row in self.rows)


def start_runs(pool, program, case, dtype, device):
    """xtrain's results to come, by (attention, device). Most of a run is its start."""
    wanted = [("composed", device), ("flash", device)]
    if device == "cuda" and dtype == "f32":
        wanted.append(("composed", "cpu"))
    return {(attention, place): pool.submit(xtrain_results, program, case, dtype, place,
                                            attention == "flash")
            for attention, place in wanted}


def compare(report, case, dtype, device, runs):
    reference = pytorch_results(case, torch.float64, "cpu", flash=False)
    results = {key: run.result() for key, run in runs.items()}
    for name in ("composed", "flash"):
        errors = differences(results[name, device], reference)
        if "peer" in REFERENCE_LIMITS[dtype]:
            peer = pytorch_results(case, DTYPES[dtype], device, flash=name == "flash")
            errors["peer"] = peer_ratio(results[name, device], peer, reference)
        report.add(REFERENCE_LIMITS[dtype], errors, model=case.name, dtype=dtype,
                   what=f"{name} on {device} against float64")
    report.add(FLASH_LIMITS[dtype],
               differences(results["flash", device], results["composed", device]),
               model=case.name, dtype=dtype, what=f"flash against composed on {device}")
    if device != "cpu" and ("composed", "cpu") in results:
        report.add(DEVICE_LIMITS,
                   differences(results["composed", device], results["composed", "cpu"]),
                   model=case.name, dtype=dtype, what=f"{device} against cpu, composed")


def compare_all(program, dtypes, device):
    report, work = Report(), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, config in (("qwen3", QWEN3), ("gpt2", GPT2)):
            case = Case(name, config, std=0.02, rows=3, length=75, seed=1)
            for dtype in dtypes:
                rounded = case.rounded(DTYPES[dtype])
                work.append((rounded, dtype, start_runs(pool, program, rounded, dtype, device)))
        for case, dtype, runs in work:
            compare(report, case, dtype, device, runs)
    return report


ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def adamw_results(start, gradients, dtype):
    """The weights after one step of torch.optim.AdamW for each gradient."""
    weights = start.to(dtype, copy=True).requires_grad_()
    optimizer = torch.optim.AdamW([weights], **ADAMW)
    for gradient in gradients.to(dtype):
        weights.grad = gradient.clone()
        optimizer.step()
    return weights.detach()


def write_adamw_golden(path):
    """Gradients of many sizes: what is divided by their root must not matter."""
    generator = torch.Generator().manual_seed(5)
    start = 0.5 * torch.rand(64, generator=generator) - 0.25
    gradients = (torch.randn(10, 64, generator=generator)
                 * 10 ** torch.linspace(-6, 3, 64)).float()
    tensors = {"start": start, "gradients": gradients}
    for name, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        tensors["expected." + name] = adamw_results(start, gradients, dtype)
    write_safetensors(path, tensors, {key: str(value) for key, value in ADAMW.items()})


def write_golden(folder):
    write_adamw_golden(os.path.join(folder, "adamw.safetensors"))
    for name, config in (("qwen3", QWEN3), ("gpt2", GPT2)):
        case = Case(name, {**config, **SMALL}, std=0.2, rows=3, length=11, seed=3)
        case = case.rounded(torch.bfloat16)
        expected = pytorch_results(case, torch.float64, "cpu", flash=False)
        case.write(os.path.join(folder, name + ".safetensors"),
                   {"expected." + key: x for key, x in expected.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="build folder with bin/model_values")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    parser.add_argument("--write-golden", metavar="FOLDER", help="only write the files of the tests")
    options = parser.parse_args()
    if options.write_golden:
        write_golden(options.write_golden)
        return 0
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(1)  # the models are small, and other programs run beside
    program = os.path.join(options.build, "bin", "model_values")
    report = compare_all(program, options.dtypes, options.device)
    if options.json:
        summary = {"pytorch": torch.__version__, "device": options.device, "ok": report.ok(),
                   "rows": report.rows}
        pathlib.Path(options.json).write_text(json.dumps(summary, indent=1) + "\n")
    print("all within their limits" if report.ok() else "some are beyond their limits")
    return 0 if report.ok() else 1


if __name__ == "__main__":
    sys.exit(main())
