#!/usr/bin/env python3
"""The report of tools/bench_against.sh: train.json, and train.md made from it.

    python3 tools/bench_against_report.py FOLDER --row gpt2_124m --work build/bench_against --commit X
    python3 tools/bench_against_report.py FOLDER

The first puts what a row's rounds have printed into the report; both write the tables anew.
"""

import argparse
import datetime
import fcntl
import json
import os
import pathlib
import statistics

ORDER = ["gpt2_124m", "gpt2_350m", "qwen2.5_0.5b", "qwen3_0.6b", "small8", "small8_long", "tiny"]

# Other programs were measured on another day beside PyTorch compiled, both on one H200, in thousand
# tokens a second (2026-11-29, PyTorch 2.11, batches as in the rows here unless said): theirs and
# PyTorch's. Their ratio times PyTorch's speed here, on the batch they were beside if it was
# timed, is what they would reach here.
ELSEWHERE = {
    "gpt2_124m": ("llm.c", 554, 545, "cuDNN attention, no recompute"),
    "gpt2_350m": ("llm.c", 204, 200, "cuDNN attention, no recompute"),
    "qwen2.5_0.5b": ("llmq", 156, 139, "bf16, CUDA graphs; PyTorch's on 16 x 1024 tokens without "
                     "accumulation"),
}


def rounds_of(work, row, program):
    files = sorted(work.glob(f"{row}.{program}.[0-9]*.json"),
                   key=lambda path: int(path.name.split(".")[-2]))
    if not files:
        raise SystemExit(f"bench_against_report: {work} must hold {row}.{program}.1.json; it does "
                         "not; run tools/bench_against.sh")
    return [json.loads(path.read_text()) for path in files]


def new_row(work, row, commit):
    measured = {program: rounds_of(work, row, program) for program in ("xtrain", "pytorch")}
    yardstick = work / f"{row}.yardstick.json"
    if yardstick.exists():
        measured["yardstick"] = json.loads(yardstick.read_text())[0]
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit, "commands": (work / f"{row}.commands").read_text().splitlines(),
            **measured}


def fastest_peer(row):
    """Of each round the mode of PyTorch that is the fastest over all rounds."""
    modes = [p["mode"] for p in row["pytorch"][0]]
    by_mode = {mode: [next(p for p in r if p["mode"] == mode) for r in row["pytorch"]]
               for mode in modes}
    return max(by_mode.values(), key=lambda runs: median(runs, "tokens_per_s"))


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def ratio_of(mine, peers):
    """Of neighbours in time, which meet the machine in the same state."""
    return statistics.median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(mine, peers))


def thousands(value):
    return f"{value / 1e3:.1f} k"


def speed_line(name, row):
    mine, peers = row["xtrain"], fastest_peer(row)
    first, ratio = mine[0], ratio_of(mine, peers)
    best, elsewhere = ratio, "-"
    if name in ELSEWHERE:
        program, theirs, pytorch, _ = ELSEWHERE[name]
        yardstick = row["yardstick"]["tokens_per_s"] if "yardstick" in row else median(
            peers, "tokens_per_s")
        scaled = theirs / pytorch * yardstick
        best = min(ratio, ratio * median(peers, "tokens_per_s") / scaled)
        elsewhere = f"{program} {thousands(scaled)}"
    memory, their_memory = median(mine, "peak_mib"), median(peers, "peak_mib")
    micro = f"{first['accumulate']} x " if first["accumulate"] > 1 else ""
    return [name, f"{micro}{first['batch']} x {first['seq_len']}", first["dtype"],
            f"{median(mine, 'ms'):.2f}", thousands(median(mine, "tokens_per_s")),
            f"{median(mine, 'mfu'):.3f}", thousands(median(peers, "tokens_per_s")),
            peers[0]["mode"], f"{ratio:.3f}", elsewhere, f"{best:.3f}", f"{memory:.0f}",
            f"{their_memory:.0f}", f"{memory / their_memory:.2f}"]


def table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"


def kernel_table(kernels):
    lines = []
    kinds = kernels["kinds"] + [{"kind": "all kernels", "ms": kernels["sum_ms"],
                                 "floor_ms": sum(k["floor_ms"] for k in kernels["kinds"])},
                                {"kind": "idle", "ms": kernels["idle_ms"], "floor_ms": 0}]
    for kind in kinds:
        floor = kind["floor_ms"]
        lines.append([kind["kind"], f"{kind['ms']:.3f}", f"{floor:.3f}" if floor else "-",
                      f"{kind['ms'] / floor:.2f}" if floor else "-"])
    return table(["kernels", "ms", "floor ms", "of floor"], lines)


def other_modes(row):
    """How far xtrain is from each mode of PyTorch where several were measured."""
    modes = [p["mode"] for p in row["pytorch"][0]]
    if len(modes) == 1:
        return ""
    parts = []
    for i, mode in enumerate(modes):
        ratio = ratio_of(row["xtrain"], [r[i] for r in row["pytorch"]])
        parts.append(f"{ratio:.3f} x {'compiled' if mode == 'default' else mode}")
    return "Against PyTorch: " + ", ".join(parts) + ".\n\n"


def row_section(name, row):
    first = row["xtrain"][0]
    text = f"### {name}\n\n{row['date']}, {first['device']}, commit {row['commit']}, PyTorch "
    text += f"{row['pytorch'][0][0]['version']}, {len(row['xtrain'])} rounds. Peak "
    text += f"{first['peak_tflops']:.4g} TFLOP/s (product of {first['peak_product']} cubed), copy "
    text += f"{first['copy_gb_per_s']:.0f} GB/s. Predicted memory {first['predicted_mib']:.0f} MiB."
    text += "\n\n"
    text += "".join(f"    {command}\n" for command in row["commands"]) + "\n"
    text += other_modes(row)
    if "kernels" in first:
        text += kernel_table(first["kernels"])
    elif "no_kernels" in first:
        text += f"No kernel times: {first['no_kernels']}.\n"
    return text.rstrip("\n") + "\n"


def page(report):
    rows = sorted(report["rows"].items(),
                  key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER))
    text = "# Training speed\n\nMade by `bash tools/bench_against.sh`; the numbers are in "
    text += "train.json, how to read them in README.md.\n\n"
    text += table(["row", "batch", "dtype", "ms", "tokens/s", "MFU", "PyTorch", "mode",
                   "speed ratio", "measured elsewhere, scaled", "ratio to the best", "MiB",
                   "PyTorch MiB", "memory ratio"], [speed_line(*item) for item in rows])
    text += "\nMeasured elsewhere: not in these runs, but on another day beside PyTorch compiled "
    text += "on one H200; scaled by PyTorch's speed here, on that batch if a command below has it."
    text += "\n\n"
    for name, (program, theirs, pytorch, how) in ELSEWHERE.items():
        text += f"- {name}: {program} {theirs} k tokens/s beside PyTorch's {pytorch} k; {how}.\n"
    return text + "\n" + "\n".join(row_section(*item) for item in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--row")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--commit", default="unknown")
    o = parser.parse_args()
    if o.row and not o.work:
        parser.error("--row needs --work")
    row = new_row(o.work, o.row, o.commit) if o.row else None
    path = o.folder / "train.json"
    folder = os.open(o.folder, os.O_RDONLY)  # its lock: other rows may end at the same time
    fcntl.flock(folder, fcntl.LOCK_EX)
    report = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    if row:
        report["rows"][o.row] = row
        path.write_text(json.dumps(report, indent=1) + "\n")
    (o.folder / "train.md").write_text(page(report))


if __name__ == "__main__":
    main()
