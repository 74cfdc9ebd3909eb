#!/usr/bin/env python3
"""Compares models with Hugging Face transformers' after a trip through files, in both directions.

    pip install torch transformers
    python3 tools/compare_transformers.py [--bin build/bin] [--work FOLDER]
    python3 tools/compare_transformers.py --write-golden tests/golden/transformers

For each of GPT-2, Llama, Qwen2 and Qwen3, tied and untied:

    export  a small model is trained by `train`, exported by `convert`, and loaded by transformers
    import  a random model made by transformers is imported by `convert`, and read as it is, too

Both sides then compute in f32 on the CPU. A row of the table is good when

    - the logits of ten prompts with their continuations differ by at most 1e-4,
    - ten greedy continuations of 64 tokens are identical; ours come from `generate`
    - an export's tokenizer gives our ids, a second export has the same hash, and an export in shards
      holds the same values,
    - of an imported model, exporting it again gives transformers' own values bit for bit.

Exit code 0: every row is good; 1: some is not.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from safetensors.torch import load_file, save_file

LAYOUTS = ("gpt2", "llama", "qwen2", "qwen3")
PROMPTS, PROMPT_TOKENS, NEW_TOKENS, POSITIONS = 10, 24, 64, 96
LIMIT = 1e-4


def run(program, *arguments):
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, arguments))}: exit code {done.returncode}\n"
                 f"{done.stderr}")
    return done.stdout


def model_config(layout, tied):
    config = dict(model_type=layout, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                  max_position_embeddings=POSITIONS, tie_word_embeddings=tied)
    if layout != "gpt2":
        config.update(num_key_value_heads=2, intermediate_size=112, rope_theta=5000.0)
    if layout in ("llama", "qwen3"):
        config.update(head_dim=32)  # heads wider than the model's share for each
    return config


def train(bin, layout, tied, folder):
    config = folder / "config.json"
    config.write_text(json.dumps({
        "model": model_config(layout, tied),
        "train": dict(batch_size=4, seq_len=64, max_steps=60, warmup_steps=5, learning_rate=3e-3,
                      eval_interval=0, num_samples=0, device="cpu"),
        "data": dict(stories_count=200)}))
    run(bin / "train", "--config", config, "--out-dir", folder / "run")
    return folder / "run"


def random_model(layout, tied, vocab=300, hidden=64, head_dim=32, inner=112, layers=3,
                 positions=POSITIONS):
    """A model whose every tensor is random, norms and biases too: defaults would hide a mix-up."""
    common = dict(vocab_size=vocab, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None)
    if layout == "gpt2":
        config = transformers.GPT2Config(n_positions=positions, n_embd=hidden, n_layer=layers,
                                         n_head=4, **common)
    else:
        kind = dict(llama=transformers.LlamaConfig, qwen2=transformers.Qwen2Config,
                    qwen3=transformers.Qwen3Config)[layout]
        if layout != "qwen2":
            common.update(head_dim=head_dim, attention_bias=layout == "qwen3" or tied)
        config = kind(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=4,
                      num_key_value_heads=2, intermediate_size=inner, rms_norm_eps=1e-5,
                      max_position_embeddings=positions, **common)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.normal_(1.0 if is_norm else 0.0, 0.1)
    return model


def write_golden(folder):
    for layout, tied in zip(LAYOUTS, (True, False, True, False)):
        model = random_model(layout, tied, vocab=13, hidden=16, head_dim=6, inner=20, layers=2,
                             positions=12)
        model.save_pretrained(folder / layout)
        inputs = torch.randint(0, 13, (2, 12))
        with torch.no_grad():
            logits = model.double()(inputs).logits
        save_file({"inputs": inputs.to(torch.int32), "logits": logits},
                  folder / layout / "logits.safetensors")


def ours(bin, folder, ids, work):
    """Logits [B, T, V] in f32."""
    save_file({"inputs": ids.to(torch.int32)}, work / "inputs.safetensors")
    run(bin / "model_values", folder, "--inputs", work / "inputs.safetensors", "--output",
        work / "logits.safetensors", "--device", "cpu", "--dtype", "f32", "--flash")
    return load_file(work / "logits.safetensors")["logits"]


def their_continuations(model, ids):
    for _ in range(NEW_TOKENS):
        ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def our_continuations(bin, folder, prompts):
    arguments = ["--model", folder, "--temperature", 0, "--max-new-tokens", NEW_TOKENS,
                 "--ignore-eos", "--json", "--device", "cpu"]
    for prompt in prompts.tolist():
        arguments += ["--prompt-ids", " ".join(map(str, prompt))]
    texts = [json.loads(line) for line in run(bin / "generate", *arguments).splitlines()]
    return torch.cat([prompts, torch.tensor([text["ids"] for text in texts])], 1)


def compare(bin, folder, model, work):
    """The largest difference of logits, and how many of the greedy continuations agree."""
    torch.manual_seed(3)
    prompts = torch.randint(0, min(256, model.config.vocab_size), (PROMPTS, PROMPT_TOKENS))
    with torch.no_grad():
        written = their_continuations(model, prompts)
        logits = model(written).logits
    difference = (ours(bin, folder, written, work) - logits).abs().max().item()
    same = our_continuations(bin, folder, prompts) == written
    return difference, int(same.all(1).sum())


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[problem]:
            sys.exit(f"{folder}: transformers reports {problem}: {info[problem]}")
    return model.eval()


def digest(folder):
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()


def tensors(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        found.update(load_file(path))
    return found


def same_tensors(a, b):
    a, b = tensors(a), tensors(b)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def same_ids(folder):
    text = "Once upon a time,\r\n\tthere  was a wörld \u4e2d\U0001f642 'll 123\u00a0\0 .\n\n"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    return ids == list(text.encode()) and tokenizer.decode(ids) == text


def check_export(bin, layout, tied, work):
    checkpoint = train(bin, layout, tied, work)
    for name in ("first", "second"):
        run(bin / "convert", "export", checkpoint, work / name)
    run(bin / "convert", "export", checkpoint, work / "shards", "--max-shard-size", "100KB")
    model = load(work / "first")
    sharded = load(work / "shards").state_dict()
    problems = [] if digest(work / "first") == digest(work / "second") else ["hashes differ"]
    if not all(torch.equal(value, sharded[name]) for name, value in model.state_dict().items()):
        problems.append("shards differ")
    if not same_ids(work / "first"):
        problems.append("tokenizer differs")
    return (*compare(bin, checkpoint, model, work), problems)


def check_import(bin, layout, tied, work):
    model = random_model(layout, tied)
    model.save_pretrained(work / "theirs")
    run(bin / "convert", "import", work / "theirs", work / "imported")
    run(bin / "convert", "export", work / "imported", work / "back")
    problems = [] if same_tensors(work / "theirs", work / "back") else ["values changed"]
    difference, same = compare(bin, work / "imported", model, work)
    direct, same_direct = compare(bin, work / "theirs", model, work)
    return max(difference, direct), min(same, same_direct), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("XTRAIN_BIN", "build/bin")),
                        help="folder of train, convert, generate and model_values")
    parser.add_argument("--work", type=pathlib.Path, help="folder to keep the models in")
    parser.add_argument("--write-golden", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if arguments.write_golden:
        write_golden(arguments.write_golden)
        return 0
    print(f"torch {torch.__version__}, transformers {transformers.__version__}; f32, CPU")
    print(f"{'model':<18}{'way':<8}{'logits':>10}  {'greedy':>7}  result")
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        base = arguments.work or pathlib.Path(temporary)
        for layout in LAYOUTS:
            for tied in (True, False):
                for way, check in (("export", check_export), ("import", check_import)):
                    name = f"{layout} {'tied' if tied else 'untied'}"
                    work = base / f"{name.replace(' ', '_')}_{way}"
                    work.mkdir(parents=True)
                    difference, same, problems = check(arguments.bin, layout, tied, work)
                    good = difference <= LIMIT and same == PROMPTS and not problems
                    failures += not good
                    print(f"{name:<18}{way:<8}{difference:>10.1e}  {same:>4}/{PROMPTS}  "
                          f"{'ok' if good else 'FAILED ' + ', '.join(problems)}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
