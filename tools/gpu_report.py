#!/usr/bin/env python3
"""The report of tools/gpu_check.sh: gpu_check.json, and gpu_check.md made from it.

    python3 tools/gpu_report.py add FOLDER --section tests --work build-gpu/gpu_check ...
    python3 tools/gpu_report.py table FOLDER

`add` reads what a section has printed and written, judges it and puts it into the report. A report
on another commit is begun anew.
"""

import argparse
import datetime
import fcntl
import json
import pathlib
import re
import statistics
import subprocess
import sys

# Ops that must move their bytes at this share of a copy's rate, or better.
COPY_SHARE = 0.85
MEMORY_BOUND = {"rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "gelu", "gelu_tanh",
                "swiglu", "softmax", "cross_entropy"}
# From this length on attention is compared with PyTorch's, under a causal mask: the least ratio by
# pass and peer. Backward against cuDNN has less to reach from LONG_SEQUENCE on.
SHORTEST_SEQUENCE, LONG_SEQUENCE = 1024, 8192
LEAST_RATIOS = {("forward", "cudnn"): 0.9, ("backward", "cudnn"): 0.85, ("forward", "fa2"): 1.4,
                ("backward", "fa2"): 1.25}
LEAST_LONG_BACKWARD = 0.8
# TFLOP/s of an H200 at head size 64 and 1024 tokens, causal, which decide about small models.
LEAST_RATES = {"forward": 300, "backward": 228}
MEMORY_SAVED = {"8x1024": 0.30, "2x2048": 0.40}
# A step with flash attention against one with composed, times as fast.
STEP_SPEEDUP = {"8x1024": 1.3, "2x2048": 1.15}
# What tests/support/tolerance.h says of flash attention by wgmma.
LARGEST_ERRORS = {"o": 4e-3, "dq": 1e-2, "dk": 1e-2, "dv": 1e-2, "log_sum": 1e-4}


def check(name, value, at_most=None, at_least=None):
    ok = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    limit = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
    return {"name": name, "value": value, "limit": limit, "ok": ok}


# --- the sections: what each has printed or written, as checks and details -----------------------


class Section:
    def __init__(self, work, name):
        self.name = name
        self.work = work
        self.log = (work / f"{name}.log").read_text(errors="replace")
        self.json_path = work / f"{name}.json"

    def json(self):
        return json.loads(self.json_path.read_text())

    def find(self, pattern):
        return re.findall(pattern, self.log, re.MULTILINE)


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


def attention(section):
    found, checks = section.json(), []
    causal = [r for r in found["rows"]
              if r["mask"] == "causal" and r["length"] >= SHORTEST_SEQUENCE]
    for row in causal:
        checks += attention_peers(row)
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


def steps_of(section, run, quantity):
    lines = (section.work / "ddp" / f"{run}.jsonl").read_text().splitlines()
    return [json.loads(line)[quantity] for line in lines]


def ddp_losses(section):
    checks = []
    for attention in ("composed", "flash"):
        loss = {run: steps_of(section, f"loss_{attention}_{run}", "loss")
                for run in ("one", "plain", "again", "zero")}
        for run in ("plain", "zero"):
            checks.append(check(f"{attention}, {run}: steps compared", len(loss[run]), at_least=50))
            apart = max(abs(a - b) / abs(b) for a, b in zip(loss[run], loss["one"], strict=True))
            checks.append(check(f"{attention}, {run}: losses of two GPUs from those of one", apart,
                                at_most=1e-5))
        checks.append(check(f"{attention}: steps that differ in a second run",
                            sum(a != b for a, b in zip(loss["plain"], loss["again"], strict=True)),
                            at_most=0))
    return checks


def ddp_speed(section):
    """Tokens a second: the median over the later steps, the better of the rounds."""
    speed = {run: max(statistics.median(steps_of(section, f"speed_{run}_{r}", "tokens_per_s")[10:])
                      for r in (1, 2)) for run in ("one", "plain", "zero")}
    hidden = dict(section.find(
        r"^run (speed_(?:plain|zero)_1): (?:.*\n)*?collectives took .*: (\d+) % hidden$"))
    rows = [{"gpus": 1 if run == "one" else 2, "optimizer": run, "tokens_per_s": speed[run],
             "scaling": speed[run] / (speed["one"] * (1 if run == "one" else 2)),
             "hidden": hidden.get(f"speed_{run}_1")} for run in speed]
    return [check("plain: two GPUs / twice one", speed["plain"] / speed["one"] / 2, at_least=0.97),
            check("ZeRO: two GPUs / twice one", speed["zero"] / speed["one"] / 2, at_least=0.97),
            check("ZeRO / plain", speed["zero"] / speed["plain"], at_least=1)], rows


def ddp_kill(section):
    number = lambda pattern: float(section.find(pattern)[-1])  # noqa: E731
    weights = dict(section.find(r"^(unbroken|broken) weights (\w+)"))
    return [check("killed rank: named by the other", len(section.find(
                r"^train_ddp: rank \d was lost: connection closed$")), at_least=1),
            check("killed rank: ms until all were gone",
                  number(r"^all ranks gone after (\d+) ms$"), at_most=25000),
            check("killed rank: exit code of the restarted run",
                  number(r"^restarted run ended with exit code (\d+)$"), at_most=0),
            check("killed rank: different weights than unbroken",
                  weights["broken"] != weights["unbroken"], at_most=0),
            check("processes left", number(r"^processes left: (\d+)$"), at_most=0)]


def ddp(section):
    starts = {name: len(steps_of(section, f"start_{name}", "loss"))
              for name in ("torchrun", "mpirun")}
    speed_checks, rows = ddp_speed(section)
    return (ctest_counts(section)
            + [check("sums stay out of switches (NCCL_NVLS_ENABLE=0)",
                     len(section.find("^switches: NCCL_NVLS_ENABLE set")), at_least=1)]
            + ddp_losses(section) + speed_checks
            + [check(f"steps under {name}", steps, at_least=20) for name, steps in starts.items()]
            + ddp_kill(section)), {"rows": rows}


SECTIONS = {
    "tests": tests, "gradcheck": gradcheck, "pytorch": pytorch,
    "memcheck": sanitizer, "racecheck": sanitizer, "gemm": gemm, "ops": ops, "attention": attention,
    "attention_errors": attention_errors, "step": step, "repeat": repeat,
    "shakespeare": shakespeare, "ddp": ddp,
}


# --- the machine ----------------------------------------------------------------------------------


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine(build):
    cache = (build / "CMakeCache.txt").read_text()

    def compiler(language):
        found = re.search(rf"^CMAKE_{language}_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
        return found.group(1) if found else ""

    gpu, _, driver = output_of("nvidia-smi", "--query-gpu=name,driver_version",
                               "--format=csv,noheader", "--id=0").partition(", ")
    nvcc = re.search(r"release [\d.]+, V([\d.]+)", output_of(compiler("CUDA"), "--version"))
    return {"gpu": gpu, "driver": driver, "cuda_compiler": f"nvcc {nvcc.group(1) if nvcc else '?'}",
            "cxx_compiler": output_of(compiler("CXX"), "--version").split("\n")[0]}


# --- the report -----------------------------------------------------------------------------------


def read_report(folder, commit):
    path = folder / "gpu_check.json"
    if path.exists():
        report = json.loads(path.read_text())
        if commit in (None, report["commit"]):
            return report
    return {"commit": commit, "sections": {}}


def judge(section, status):
    """Checks and details; output that cannot be read is a failed check."""
    try:
        checks, details = SECTIONS[section.name](section)
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        checks, details = [check("outputs that could not be read", 1, at_most=0)], {
            "unreadable": repr(error)}
    checks.append(check("exit code (124: stopped at the time limit)", status, at_most=0))
    if not all(c["ok"] for c in checks):
        details["end_of_log"] = section.log.splitlines()[-20:]
    return checks, details


def add(o):
    work, folder = pathlib.Path(o.work), pathlib.Path(o.folder)
    section = Section(work, o.section)
    checks, details = judge(section, o.status)
    ok = all(c["ok"] for c in checks)
    entry = {
        "ok": ok, "seconds": o.seconds,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        **machine(pathlib.Path(o.build)), "checks": checks, "details": details}
    with open(work / "report.lock", "w") as lock:  # other sections may end at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = read_report(folder, o.commit)
        report["sections"][o.section] = entry
        report["ok"] = all(s["ok"] for s in report["sections"].values())
        (folder / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'ok  ' if ok else 'FAIL'} {o.section} in {o.seconds} s")
    for c in checks:
        if not c["ok"]:
            print(f"     {c['name']}: {c['value']:g}, must be {c['limit']}")
    return 0 if ok else 1


def rows_of(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def number(x, form="{:.0f}"):
    return form.format(x) if x is not None else "-"


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


def ddp_table(details):
    rows = [(r["gpus"], {"one": "-", "plain": "whole on each", "zero": "shared (ZeRO 1)"}
             [r["optimizer"]], f"{r['tokens_per_s']:.0f}", f"{r['scaling']:.4f}",
             f"{r['hidden']} %" if r["hidden"] else "-") for r in details["rows"]]
    return ["GPT-2 124M, bf16, 32 x 1024 tokens a GPU.", ""] + rows_of(
        ["GPUs", "optimizer", "tokens/s", "of one GPU's rate", "communication hidden"], rows)


def details_of(name, details):
    tables = {"ops": ops_table, "attention": attention_table,
              "attention_errors": attention_errors_table, "step": step_table, "ddp": ddp_table}
    if name in tables and "rows" in details:
        return tables[name](details) + [""]
    lines = details.get("closing_lines") or details.get("table") or details.get("end_of_log") or []
    return ["```", *lines, "```", ""] if lines else []


def table(o):
    folder = pathlib.Path(o.folder)
    report = read_report(folder, None)
    lines = ["# GPU check", "", f"Made by `bash tools/gpu_check.sh {report['commit']}`; the numbers "
             "are in gpu_check.json.", ""]
    lines += rows_of(["section", "verdict", "seconds", "date", "GPU", "driver", "compilers"],
                     [(name, "ok" if s["ok"] else "FAIL", s["seconds"], s["date"], s["gpu"],
                       s["driver"], f"{s['cuda_compiler']}, {s['cxx_compiler']}")
                      for name, s in report["sections"].items()])
    for name, s in report["sections"].items():
        lines += ["", f"## {name}", ""]
        lines += details_of(name, s["details"])
        lines += rows_of(["check", "value", "must be", "verdict"],
                         [(c["name"], f"{c['value']:.4g}", c["limit"], "ok" if c["ok"] else "FAIL")
                          for c in s["checks"]])
    (folder / "gpu_check.md").write_text("\n".join(lines) + "\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    adding = commands.add_parser("add", help="judge a section and put it into the report")
    adding.add_argument("folder")
    adding.add_argument("--section", required=True, choices=list(SECTIONS))
    for name in ("work", "build", "commit"):
        adding.add_argument("--" + name, required=True)
    adding.add_argument("--status", type=int, required=True, help="exit code of the section")
    adding.add_argument("--seconds", type=int, required=True)
    adding.set_defaults(run=add)
    making = commands.add_parser("table", help="write gpu_check.md")
    making.add_argument("folder")
    making.set_defaults(run=table)
    o = parser.parse_args()
    return o.run(o)


if __name__ == "__main__":
    sys.exit(main())
