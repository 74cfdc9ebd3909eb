#!/usr/bin/env python3
"""The report of tools/gpu_check.sh: gpu_check.json, and gpu_check.md made from it.

    python3 tools/gpu_report.py add FOLDER --section tests --work build-gpu/gpu_check ...
    python3 tools/gpu_report.py table FOLDER

`add` reads what a section has printed and written, judges it and puts it into the report, which
keeps the other sections as they are; each says which commit it was run on.
"""

import re
import statistics
import sys

from report import Report, check, killed_rank, number, rows_of

# Tokens, one after the other, at this share of the rate of a copy of weights, keys and values.
DECODE_SHARE = 0.35
# Ops that must move their bytes at this share of a copy's rate, or better.
COPY_SHARE = 0.85
MEMORY_BOUND = {"rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "gelu", "gelu_tanh",
                "swiglu", "softmax", "cross_entropy"}
# From this length on attention is compared with PyTorch's, under a causal mask: the least ratio by
# pass and peer. Backward against cuDNN has less to reach from LONG_SEQUENCE on.
SHORTEST_SEQUENCE, LONG_SEQUENCE = 1024, 8192
LEAST_RATIOS = {("forward", "cudnn"): 0.9, ("backward", "cudnn"): 0.85, ("forward", "fa2"): 1.4,
                ("backward", "fa2"): 1.25}
LEAST_PORTABLE = {("forward", "fa2"): 1.0, ("backward", "fa2"): 0.8,
                  ("backward", "fa2_ordered"): 1.0}
LONGEST_PORTABLE = 8192  # tokens of a sequence up to which they hold
LEAST_LONG_BACKWARD = 0.8
# TFLOP/s of an H200 at head size 64 and 1024 tokens, causal, which decide about small models.
LEAST_RATES = {"forward": 300, "backward": 228}
MEMORY_SAVED = {"8x1024": 0.30, "2x2048": 0.40}
# A step with flash attention against one with composed, times as fast.
STEP_SPEEDUP = {"8x1024": 1.3, "2x2048": 1.15}
# Runs on two GPUs, with the options that make them what they are, and one to compare them with.
SPEEDS = {"one": "", "plain": "--no-zero", "zero": "as it comes",
          "plain_beside": "--no-zero --overlap", "zero_beside": "--zero --overlap",
          "zero_bf16": "--reduce bf16"}
LEAST_SCALING = 0.97  # tokens a second on two GPUs / twice those on one
# What tests/support/tolerance.h says of flash attention by wgmma.
LARGEST_ERRORS = {"o": 4e-3, "dq": 1e-2, "dk": 1e-2, "dv": 1e-2, "log_sum": 1e-4}


# --- the sections: what each has printed or written, as checks and details -----------------------


def ctest_counts(section):
    # CTest names the number of failures always, or only when there are some.
    passed, failed, total = section.find(
        r"^(\d+)% tests passed(?:, (\d+) tests? failed)? out of (\d+)")[-1]
    if not failed and passed != "100":
        raise ValueError("the closing line does not tell how many tests failed")
    failed = failed or 0
    return [check("tests", int(total), at_least=1), check("failed", int(failed), at_most=0)]


def tests(section):
    return ctest_counts(section), {}


def gradcheck(section):
    rows = section.find(r"(\S+)\s+(ok|FAIL)$")
    return [check("gradients checked", len(rows), at_least=1),
            check("largest relative error", max(float(error) for error, _ in rows), at_most=1e-6),
            check("beyond the tolerance", sum(v == "FAIL" for _, v in rows), at_most=0)], {}


def pytorch(section):
    found = section.json()
    checks = [check(f"{r['model']} {r['dtype']} {r['what']}: {r['quantity']}", r["value"],
                    at_most=r["limit"]) for r in found["rows"]]
    return checks, {"pytorch": found["pytorch"]}


def sanitizer(section):
    labels = section.find(r"^--- \w+\.(\w+)$")
    closing = section.find(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$")
    faults = sum(int(re.search(r"\d+", line).group()) for line in closing)
    passed = len(section.find(r"^All tests passed"))
    return [check("runs", len(labels), at_least=1),
            check("runs whose tests did not pass", len(labels) - passed, at_most=0),
            check("runs without a closing line", len(labels) - len(closing), at_most=0),
            check("faults", faults, at_most=0)], \
        {"closing_lines": [": ".join(pair) for pair in zip(labels, closing)]}


def gemm(section):
    """At 4096 cubed in bf16: TFLOP/s by backend, which stand in pairs with their shares."""
    names = section.find(r"^product +batch +m +n +k +(.*)$")[0].split()
    cells = section.find(r"^square +1 +4096 +4096 +4096 +(.*)$")[0].split()
    rate = dict(zip(names, map(float, cells[::2])))
    return [check("tiled / naive at 4096, bf16", rate["tiled"] / rate["naive"], at_least=3),
            check("mma / library at 4096, bf16", rate["mma"] / rate["library"], at_least=0.5)], \
        {"table": section.log.splitlines()}


def ops(section):
    found = section.json()
    checks = [check(f"{r['op']} {r['pass']}, share of a copy's rate", r["share"],
                    at_least=COPY_SHARE) for r in found["ops"] if r["op"] in MEMORY_BOUND]
    return checks, found


def attention_peers(row):
    checks, place = [], f"D {row['head_dim']} T {row['length']} causal"
    for (direction, peer), least in LEAST_RATIOS.items():
        if (direction, peer) == ("backward", "cudnn") and row["length"] >= LONG_SEQUENCE:
            least = LEAST_LONG_BACKWARD
        if row.get(peer):
            checks.append(check(f"{place}: {direction} / {peer}",
                                row["flash"][direction] / row[peer][direction], at_least=least))
    return checks


def attention_portable(row):
    """Of the portable kernels, which run where wgmma is not to be had."""
    if row["length"] > LONGEST_PORTABLE:
        return []
    place = f"D {row['head_dim']} T {row['length']} causal"
    return [check(f"{place}: portable {direction} / {peer}",
                  row["portable"][direction] / row[peer][direction], at_least=least)
            for (direction, peer), least in LEAST_PORTABLE.items()]


def attention(section):
    found, checks = section.json(), []
    causal = [r for r in found["rows"]
              if r["mask"] == "causal" and r["length"] >= SHORTEST_SEQUENCE]
    for row in causal:
        checks += attention_peers(row) + attention_portable(row)
        if "H200" in found.get("gpu", "") and (row["head_dim"], row["length"]) == (64, 1024):
            checks += [check(f"D 64 T 1024 causal: {direction}, TFLOP/s", row["flash"][direction],
                             at_least=least) for direction, least in LEAST_RATES.items()]
    checks.append(check("rows compared with cuDNN", sum(bool(r.get("cudnn")) for r in causal),
                        at_least=1))
    checks.append(check(f"{found['runs']} runs with the same bits", int(found["same_bits"]),
                        at_least=1))
    return checks, found


def attention_errors(section):
    rows = []
    for line in section.find(r"^errors (head_dim .*)$"):
        words = line.split()
        rows.append({name: float(value) for name, value in zip(words[::2], words[1::2])})
    checks = [check("head sizes", len(rows), at_least=5),
              check("runs whose tests did not pass", 1 - len(section.find("^All tests passed")),
                    at_most=0)]
    for row in rows:
        checks += [check(f"D {row['head_dim']:.0f}: {name}", row[name], at_most=limit)
                   for name, limit in LARGEST_ERRORS.items()]
    return checks, {"rows": rows, "kernels": section.find(r"^(\|.*\|)$")}


def step(section):
    found, checks = section.json(), []
    for r in found["rows"]:
        name = f"{r['batch']}, recompute {r['recompute']}"
        checks.append(check(f"{name}: flash faster than composed, times", r["speedup"],
                            at_least=STEP_SPEEDUP[r["batch"]]))
        checks.append(check(f"{name}: memory saved by flash", r["memory_saved"],
                            at_least=MEMORY_SAVED[r["batch"]]))
    batches = {r["batch"] for r in found["rows"] if r["recompute"] == "none"}
    checks.append(check("batches without recompute", len(batches), at_least=len(MEMORY_SAVED)))
    return checks, found


def decode(section):
    found = section.json()
    checks = [check(f"context {r['context']}, one text: decoding against a copy of what it reads",
                    r["of_copy_rate"], at_least=DECODE_SHARE) for r in found["rows"]]
    return checks, found


def transformers(section):
    rows = section.find(r"^\S+ (?:un)?tied +(?:export|import) +(\S+) +(\d+)/10  (.*)$")
    closing = [line for line in section.log.splitlines() if line]
    return [check("models there and back", len(rows), at_least=16),
            check("largest difference of logits", max(float(r[0]) for r in rows), at_most=1e-4),
            check("greedy continuations of 64 tokens that agree, of 10",
                  min(int(r[1]) for r in rows), at_least=10),
            check("rows that are not ok", sum(r[2] != "ok" for r in rows), at_most=0)
            ], {"table": closing}


def repeat(section):
    sums = section.find(r"^run (?:first|second) (\S+ \S+)\nweights (\w+)")
    names = sorted({name for name, _ in sums})
    checks = [check("ways to compute", len(names), at_least=4)]
    for name in names:
        values = [value for other, value in sums if other == name]
        checks.append(check(f"{name}: two runs, different weights", len(set(values)), at_most=1))
    return checks, {"weights": [f"{name}: {value}" for name, value in sums]}


def shakespeare(section):
    losses = [float(x) for x in section.find(r"^best validation loss (\S+)")]
    seconds = [int(x) for x in section.find(r"^run of seed \d+ took (\d+) s")]
    return [check("runs", len(losses), at_least=3),
            check("mean of the best losses on the validation split", sum(losses) / len(losses),
                  at_most=1.48),
            check("seconds of the longest run", max(seconds), at_most=60)], \
        {"losses": losses, "seconds": seconds}


def ddp_losses(section):
    checks = []
    for attention in ("composed", "flash"):
        loss = {run: section.steps_of(f"loss_{attention}_{run}", "loss")
                for run in ("one", "plain", "again", "beside", "zero")}
        for run in ("plain", "zero"):
            checks.append(check(f"{attention}, {run}: steps compared", len(loss[run]), at_least=50))
            apart = max(abs(a - b) / abs(b) for a, b in zip(loss[run], loss["one"], strict=True))
            checks.append(check(f"{attention}, {run}: losses of two GPUs from those of one", apart,
                                at_most=1e-5))
        for run, what in (("again", "in a second run"), ("beside", "beside backward")):
            checks.append(check(f"{attention}: steps that differ {what}",
                                sum(a != b for a, b in zip(loss["plain"], loss[run], strict=True)),
                                at_most=0))
    return checks


def ddp_collectives(section, run, alone):
    """Of a step, and the percentage of them in which other work went on."""
    if alone:
        return {"hidden": None}
    steps = len(section.steps_of(run, "loss"))
    took, waits, hidden = section.after_run(
        run, r"^collectives took (\S+) s, waits for them (\S+) s: (\d+) % hidden$")
    return {"hidden": hidden, "collectives_ms": 1e3 * float(took) / steps,
            "waits_ms": 1e3 * float(waits) / steps}


def ddp_speed(section):
    """Tokens a second: the median over the later steps, the better of the rounds."""
    rounds = {run: section.find(rf"^run speed_{run}_(\d): ") for run in SPEEDS}
    speed = {run: max(statistics.median(section.steps_of(f"speed_{run}_{r}", "tokens_per_s")[10:])
                      for r in rounds[run]) for run in SPEEDS}
    rows = [{"gpus": 1 if run == "one" else 2, "optimizer": run, "options": SPEEDS[run],
             "tokens_per_s": speed[run],
             "scaling": speed[run] / (speed["one"] * (1 if run == "one" else 2)),
             **ddp_collectives(section, f"speed_{run}_1", run == "one")} for run in speed]
    return [check("train_ddp as it comes: two GPUs / twice one", speed["zero"] / speed["one"] / 2,
                  at_least=LEAST_SCALING),
            check("plain: two GPUs / twice one", speed["plain"] / speed["one"] / 2,
                  at_least=LEAST_SCALING),
            check("ZeRO / plain", speed["zero"] / speed["plain"], at_least=1)], rows


def ddp(section):
    starts = {name: len(section.steps_of(f"start_{name}", "loss"))
              for name in ("torchrun", "mpirun")}
    speed_checks, rows = ddp_speed(section)
    return (ctest_counts(section)
            + [check("sums stay out of switches (NCCL_NVLS_ENABLE=0)",
                     len(section.find("^switches: NCCL_NVLS_ENABLE set")), at_least=1)]
            + ddp_losses(section) + speed_checks
            + [check(f"steps under {name}", steps, at_least=20) for name, steps in starts.items()]
            + killed_rank(section, 2)), {"rows": rows}


SECTIONS = {
    "tests": tests, "gradcheck": gradcheck, "pytorch": pytorch,
    "memcheck": sanitizer, "racecheck": sanitizer, "gemm": gemm, "ops": ops, "attention": attention,
    "attention_errors": attention_errors, "step": step, "decode": decode, "repeat": repeat,
    "transformers": transformers, "shakespeare": shakespeare, "ddp": ddp,
}


def ops_table(details):
    rows = [(r["op"], r["pass"], f"{r['bytes'] / 1e6:.0f}", f"{r['us']:.0f}",
             f"{r['gb_per_s']:.0f}", f"{r['share']:.0%}", number(r.get("eager_us")),
             number(r.get("compiled_us"))) for r in details["ops"]]
    title = (f"{details['rows']} x {details['columns']}, {details['dtype']}; a copy moves "
             f"{details['copy_gb_per_s']:.0f} GB/s, PyTorch's {details['pytorch_copy_gb_per_s']:.0f}"
             f" (PyTorch {details['pytorch']}).")
    return [title, ""] + rows_of(["op", "pass", "MB", "us", "GB/s", "of a copy", "PyTorch us",
                                  "compiled us"], rows)


def attention_table(details):
    names = {"portable": "portable", "composed": "composed", "fa2": "FA2",
             "fa2_ordered": "FA2, ordered", "cudnn": "cuDNN"}
    lines = [f"TFLOP/s of what is visible, {details['tokens']} tokens, {details['width']} elements "
             f"a token, {details['dtype']}. PyTorch {details.get('pytorch', '-')}, cuDNN "
             f"{details.get('cudnn_version', '-')}, each in the faster layout. FA2 and cuDNN add "
             "gradients in no fixed order, FA2, ordered, and flash in a fixed one.", ""]
    for direction in ("forward", "backward"):
        rows = []
        for r in details["rows"]:
            mine = r["flash"][direction]
            rates = {name: (r.get(name) or {}).get(direction) for name in names}
            rows.append((r["head_dim"], r["length"], r["mask"], number(mine),
                         *(number(rate) for rate in rates.values()),
                         *(number(rates[peer] and mine / rates[peer], "{:.2f}")
                           for peer in ("fa2", "cudnn"))))
        lines += rows_of(["head size", "length", "mask", direction, *names.values(), "/ FA2",
                          "/ cuDNN"], rows) + [""]
    return lines[:-1]


def attention_errors_table(details):
    rows = [(f"{r['head_dim']:.0f}", f"{r['shapes']:.0f}",
             *(f"{r[name]:.1e}" for name in LARGEST_ERRORS)) for r in details["rows"]]
    return ["The worst of all shapes against f64: norms of the errors by norms of the tensors, and "
            "the largest difference of log_sum. Inputs and results lie in memory that holds NaN.",
            ""] + rows_of(["head size", "shapes", *LARGEST_ERRORS], rows) + [
                "", "What ptxas says of the kernels:", ""] + details["kernels"]


def step_table(details):
    rows = []
    for r in details["rows"]:
        for name in ("composed", "flash"):
            rows.append((r["batch"], r["recompute"], name, f"{r[name]['ms']:.2f}",
                         f"{r[name]['peak_mib']:.0f}"))
    return rows_of(["batch", "recompute", "attention", "ms a step", "peak MiB"], rows)


def decode_table(details):
    rows = [(r["context"], f"{r['ms']:.3f}", f"{r['tokens_per_s']:.0f}",
             f"{100 * r['of_copy_rate']:.1f} %", f"{r['generate_tokens_per_s']:.0f}")
            for r in details["rows"]]
    return [f"configs/qwen3_0.6b.json, one text, {details['dtype']}; a copy moves "
            f"{details['copy_gb_per_s']:.0f} GB/s.", ""] + rows_of(
        ["context", "ms a token", "tokens/s", "of a copy's rate", "tokens/s of generate"], rows)


def ddp_table(details):
    rows = [(r["gpus"], r["options"], f"{r['tokens_per_s']:.0f}",
             f"{r['scaling']:.4f}", f"{r['hidden']} %" if r["hidden"] else "-")
            for r in details["rows"]]
    return ["GPT-2 124M, bf16, 32 x 1024 tokens a GPU.", ""] + rows_of(
        ["GPUs", "train_ddp", "tokens/s", "of as many times one GPU", "communication hidden"], rows)


TABLES = {
    "ops": ops_table, "attention": attention_table, "attention_errors": attention_errors_table,
    "step": step_table, "decode": decode_table, "ddp": ddp_table,
}

if __name__ == "__main__":
    report = Report("gpu_check", "GPU check", SECTIONS, TABLES)
    sys.exit(report.main(__doc__.split("\n")[0]))
