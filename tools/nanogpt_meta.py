#!/usr/bin/env python3
"""Makes meta.json of nanoGPT's meta.pkl, so that train and evaluate know what the ids mean.

    python3 tools/nanogpt_meta.py data/shakespeare_char/meta.pkl [more/meta.pkl ...]

writes a meta.json beside each. A pickle is a program that may call anything; here it may not: one
that asks for any function or class is refused, and what is left can hold only numbers, text, lists
and dictionaries.
"""

import argparse
import json
import os
import pickle
import sys


class PlainUnpickler(pickle.Unpickler):
    """Knows plain data and nothing else."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it asks for {module}.{name}; only plain data is read")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("it refers to data outside of it")


def is_id(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check(meta):
    """What nanoGPT's prepare.py for characters writes: vocab_size, and the two directions."""
    if not isinstance(meta, dict) or not is_id(meta.get("vocab_size")):
        raise ValueError("must hold a dictionary with a whole number vocab_size")
    size = meta["vocab_size"]
    itos, stoi = meta.get("itos"), meta.get("stoi")
    if itos is None and stoi is None:
        return {"vocab_size": size}
    if itos is None:
        itos = {i: s for s, i in stoi.items()}
    if isinstance(itos, list):
        itos = dict(enumerate(itos))
    if not isinstance(itos, dict) or not all(is_id(i) for i in itos):
        raise ValueError("itos must be a dictionary from id to character")
    if sorted(itos) != list(range(size)):
        raise ValueError(f"itos must have the ids 0..{size - 1}, each once; it has {len(itos)}")
    if not all(isinstance(s, str) and s for s in itos.values()):
        raise ValueError("itos must hold characters")
    if stoi is not None and stoi != {s: i for i, s in itos.items()}:
        raise ValueError("stoi and itos must be each other's inverse")
    return {"vocab_size": size, "itos": [itos[i] for i in range(size)]}


def convert(path):
    with open(path, "rb") as file:
        meta = check(PlainUnpickler(file).load())
    target = os.path.join(os.path.dirname(path), "meta.json")
    partial = target + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(meta, file, ensure_ascii=True, indent=1)
        file.write("\n")
    os.replace(partial, target)
    print(f"{target}: {meta['vocab_size']} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="meta.pkl")
    for path in parser.parse_args().files:
        try:
            convert(path)
        except Exception as error:  # a damaged pickle raises almost anything
            print(f"nanogpt_meta: {path}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
