#!/usr/bin/env python3
"""Compares the program `evaluate` with Hugging Face transformers.

    python3 tools/compare_evaluate.py [--evaluate build/bin/evaluate]

needs torch and transformers. For each layout transformers makes a small random model and saves it;
both sides compute, in f32 on the CPU, the loss of random tokens with windows that follow each other
and that overlap, and the choices in a file of multiple-choice examples. Ends with 1 where losses
differ by more than 1e-6 nats a token, or a choice differs.
"""

import argparse
import array
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import torch
import transformers

VOCAB, LENGTH, TOKENS, EXAMPLES = 300, 64, 2000, 100
MOST = 1e-6  # nats a token


def small_models():
    common = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, intermediate_size=96, max_position_embeddings=LENGTH,
                  initializer_range=0.15)
    return {
        "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4,
                                        n_positions=LENGTH, initializer_range=0.15),
        "llama": transformers.LlamaConfig(**common),
        "qwen2": transformers.Qwen2Config(**common),
        "qwen3": transformers.Qwen3Config(head_dim=16, **common),
    }


def losses(model, tokens):
    """-log p of each token but the first, given those before it."""
    ids = torch.tensor(tokens)[None]
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits[0].double()
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")


def corpus_loss(model, tokens, stride):
    total, counted = 0.0, 1  # the first token is no target
    for begin in range(0, len(tokens), stride):
        window = tokens[begin:begin + LENGTH + 1]
        new = begin + len(window) - counted
        total += losses(model, window)[-new:].sum().item()
        counted += new
        if counted == len(tokens):
            return total / (counted - 1)


def make_examples(draw):
    """A random context and four choices each; some contexts are too long."""
    def some(low, high):
        return [draw.randrange(VOCAB) for _ in range(draw.randint(low, high))]
    return [(some(1, LENGTH + 10), [some(1, 8) for _ in range(4)], draw.randrange(4))
            for _ in range(EXAMPLES)]


def write_examples(path, examples):
    body, longest = b"", 0
    for index, (context, choices, answer) in enumerate(examples):
        words = [65535, 0, index, answer, len(choices)]
        for part in [context] + choices:
            words += [len(part)] + part
        words[1] = 2 * len(words)
        longest = max(longest, words[1])
        body += struct.pack(f"<{len(words)}H", *words)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240522, 1, len(examples), longest, *[0] * 252) + body)


def accuracies(model, examples):
    right, right_norm = 0, 0
    for context, choices, answer in examples:
        sums = [losses(model, (context + c)[-(LENGTH + 1):])[-len(c):].sum().item()
                for c in choices]
        means = [s / len(c) for s, c in zip(sums, choices)]
        right += sums.index(min(sums)) == answer
        right_norm += means.index(min(means)) == answer
    return right / len(examples), right_norm / len(examples)


def evaluate(program, *arguments):
    command = [program, "--device", "cpu", "--dtype", "f32", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_evaluate: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(name, config, folder, program):
    torch.manual_seed(1)
    draw = random.Random(1)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    path = os.path.join(folder, name)
    model.save_pretrained(path)
    tokens = [draw.randrange(VOCAB) for _ in range(TOKENS)]
    data, choices = os.path.join(folder, "tokens.bin"), os.path.join(folder, "choices.bin")
    with open(data, "wb") as file:
        array.array("H", tokens).tofile(file)
    examples = make_examples(draw)
    write_examples(choices, examples)

    ok = True
    for stride in (LENGTH, LENGTH // 3):
        theirs = corpus_loss(model, tokens, stride)
        ours = evaluate(program, "--model", path, "--data", data, "--stride", str(stride))
        apart = abs(ours["loss"] - theirs)
        ok = ok and apart <= MOST and ours["tokens"] == TOKENS - 1
        print(f"{name:6} loss, windows every {stride:3}  {theirs:.7f}  {ours['loss']:.7f}  "
              f"apart {apart:.1e}")
    theirs = accuracies(model, examples)
    ours = evaluate(program, "--model", path, "--multiple-choice", choices)
    same = theirs == (ours["accuracy"], ours["accuracy_norm"])
    print(f"{name:6} accuracy, accuracy_norm {theirs[0]:.2f} {theirs[1]:.2f}   "
          f"{ours['accuracy']:.2f} {ours['accuracy_norm']:.2f}  {'same' if same else 'DIFFERENT'}")
    return ok and same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluate", default="build/bin/evaluate")
    program = parser.parse_args().evaluate
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: theirs, ours")
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(name, config, folder, program)
                   for name, config in small_models().items()]
    print("all agree" if all(results) else "they differ")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
