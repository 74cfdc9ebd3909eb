#!/usr/bin/env python3
"""Writes tests/golden/tokenizers.json: ids that Hugging Face's tokenizers give, to test ours.

    pip install tokenizers
    python3 tools/tokenizer_golden.py [--data FOLDER] [--output FILE]

The text is several MB, drawn from a list of snippets by a small generator that the test repeats, so
the file stays small: it holds the snippets, small tokenizers trained on them, and for each tokenizer
the number of ids and hashes. FOLDER holds gpt2/ and qwen2/ with vocab.json and merges.txt; without it
only the small tokenizers are written.
"""
import argparse
import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
START = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
QWEN2 = START + r"|\p{N}" + REST
LLAMA3 = START + r"|\p{N}{1,3}" + REST

BLOCK = 1 << 14  # characters of text, at least, between two snippets where the text is cut
TEXT_BYTES = 3_000_000

SNIPPETS = [
    "The quick brown fox jumps over the lazy dog. ",
    "I'll say it's what they've done, isn't it? WE'RE SURE THAT'S IT. I'D GO; he'd'nt'v'e. ",
    "It\u2019s \u201cquoted\u201d \u2014 and caf\u00e9, na\u00efve, stra\u00dfe, \u0130stanbul'\u017f. ",
    "Once upon a time, there was a little girl named Lily who loved to play outside.\n",
    "def f(x, *args, **kwargs):\n    return {k: v for k, v in kwargs.items() if v != x}\n\n",
    "for (int64_t i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];  // dot\r\n\t}\r\n",
    "<html><body class=\"x\">&nbsp;</body></html>\n", "https://example.org/a/b?c=d&e=%20f#g ",
    "x=1;y=22;z=333;w=4444;v=55555;u=123456789012345678901234567890 ", "3.14159e-10, 0x7fffffff; ",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u73a9\u5427\u3002",
    "\u6a5f\u68b0\u5b66\u7fd2\u306f\u3068\u3066\u3082\u9762\u767d\u3044\u3067\u3059\u3002\u3000",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc740 \ub744\uc5b4\uc4f0\uae30\uac00 \uc788\ub2e4. ",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663\u0664 ",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969 ",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 ",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03b1 \u03c3\u03bf\u03c5 ",
    "\U0001F642\U0001F680\U0001F468\u200D\U0001F469\u200D\U0001F467 \u2764\uFE0F \U0001F1EB\U0001F1F7 ",
    "e\u0301 a\u030a \u1100\u1161\u11a8 \u212b \u2126 \ufb01 \u0958 o\u0302\u0323 >\u0338 \u0f73 ",
    " ", "  ", "   \n", "\n\n\n", "\t", "\t\t x", "\r\n \r\n", " \u00a0\u3000\u2003 ", "\u0085\u180e\u2028\u200b\ufeff",
    "\u180e a\u180e\u180e b", "!?!?!?...---===###$$$%%%^^^&&&", "~~\n~~\r\n!!\n\n", "\x00\x01\x1b[0m\x7f",
    "<|endoftext|>", "<|im_start|>user\n", "<|im_end|>\n", "<|endoftext", "<", "\u00bd\u2167\u00b2\u2460 ",
    "supercalifragilisticexpialidociousantidisestablishmentarianism", "a", "A", "0", "'",
]


def random_snippets(count):
    """Code points of every script and category, in short strings among plain letters."""
    draw = random.Random(5)
    assigned = [c for c in range(0x80, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    few = [c for c in assigned if c < 0x3400 or 0xA000 <= c < 0xAC00 or 0xF900 <= c < 0x20000]
    text = lambda pool: "".join(draw.choice([chr(draw.choice(pool)), draw.choice("a 1.\n'")]) for _ in range(12))
    return [text(few) for _ in range(count)] + [text(assigned) for _ in range(count // 2)]


def draw_text(snippets):
    """Blocks of text. The generator is x <- 6364136223846793005 x + 1442695040888963407 mod 2^64."""
    state, size, blocks, block, held = 1, 0, [], [], 0
    while size < TEXT_BYTES:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        snippet = snippets[(state >> 33) % len(snippets)]
        times = 1 if (state >> 20) % 64 else 1 + (state >> 26) % 128  # now and then a long run
        block.append(snippet * times)
        held += len((snippet * times).encode())
        if held >= BLOCK:
            blocks.append("".join(block))
            size, held, block = size + held, 0, []
    return blocks


def fnv(ids, value=0xCBF29CE484222325):
    for i in ids:
        value = ((value ^ i) * 0x100000001B3) % 2**64
    return value


def finish(tokenizer, pattern, nfc, special):
    if pattern == GPT2:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return tokenizer


def small(pattern, nfc, blocks, ignore_merges=False):
    tokenizer = finish(Tokenizer(models.BPE(ignore_merges=ignore_merges)), pattern, nfc, [])
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>", "<|im_start|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(blocks, trainer)
    return tokenizer


def read(folder, pattern, nfc, special):
    merges = [tuple(line.split(" ")) for line in (folder / "merges.txt").read_text("utf-8").split("\n")
              if line and not line.startswith("#version")]
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    return finish(Tokenizer(models.BPE(vocab=vocab, merges=merges)), pattern, nfc, special)


def results(tokenizer, blocks):
    hashes, count = [], 0
    for block in blocks:
        ids = tokenizer.encode(block, add_special_tokens=False).ids
        hashes.append(fnv(ids))
        count += len(ids)
    return {"ids": count, "blocks": [f"{h:016x}"[:8] for h in hashes], "hash": f"{fnv(hashes):016x}"}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--data", type=Path)
    options.add_argument("--output", type=Path,
                         default=Path(__file__).parent.parent / "tests/golden/tokenizers.json")
    args = options.parse_args()
    snippets = SNIPPETS + random_snippets(160)
    blocks = draw_text(snippets)
    golden = {"snippets": snippets, "text_bytes": TEXT_BYTES, "block_bytes": BLOCK,
              "small": {}, "given": {}}
    for name, pattern, nfc, whole in (("gpt2", GPT2, False, False), ("qwen2", QWEN2, True, False),
                                      ("llama3", LLAMA3, False, True)):
        tokenizer = small(pattern, nfc, blocks[:20], whole)
        golden["small"][name] = {"tokenizer": json.loads(tokenizer.to_str()), **results(tokenizer, blocks)}
    if args.data:
        im = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        for name, pattern, nfc, special in (("gpt2", GPT2, False, im[:1]), ("qwen2", QWEN2, True, im)):
            golden["given"][name] = results(read(args.data / name, pattern, nfc, special), blocks)
    args.output.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{args.output}: {sum(len(b.encode()) for b in blocks)} bytes of text in {len(blocks)} blocks",
          file=sys.stderr)


if __name__ == "__main__":
    main()
