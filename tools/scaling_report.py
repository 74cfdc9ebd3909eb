#!/usr/bin/env python3
"""The report of tools/scaling.sh: scaling.json, and scaling.md made from it.

    python3 tools/scaling_report.py add FOLDER --section gpt2 --work build-gpu/scaling ...
    python3 tools/scaling_report.py table FOLDER

`add` reads what a section has printed and written, judges it and puts it into the report, which
keeps the other sections as they are; each says which commit it was run on.
"""

import json
import statistics
import sys

from report import Report, check, killed_rank, number, rows_of

# Of runs: plain, with the optimizer's state shared out, and plain with gradients that travel beside
# backward. The last is there to fit tools/scaling_model.py to, and not judged by its speed.
KINDS = "plain|zero|beside"
# Tokens a second on N GPUs / N times those on one, at least.
EFFICIENCY = {2: 0.97, 4: 0.96, 8: 0.95}
# How far losses of N ranks may be from those of one that accumulates. Sums of gradients differ in
# their last digit: in f64 and f32 nothing more does. In bf16 weights are rounded from masters, so a
# last digit can become one of bf16, 2^-8, in few weights; the loss must keep two digits more.
LOSS_APART = {"f64": 1e-12, "f32": 1e-5, "bf16": 2.0**-8 / 100}
# The size of an all-reduce in the summary: of many buckets.
SUMMARY_BYTES = 100e6


# --- the sections: what each has printed or written, as checks and details -----------------------


def files_by_ranks(section):
    files = sorted((section.work / section.name).glob("*.json"), key=lambda path: int(path.stem))
    return {int(path.stem): json.loads(path.read_text()) for path in files}


def bandwidth(section):
    found, rows = files_by_ranks(section), []
    for ranks, result in found.items():
        rows += [{"ranks": ranks, **row} for row in result["rows"]]
    slowest = min(row["bus_gb_per_s"] for row in rows)
    return [check("numbers of ranks", len(found), at_least=1),
            check("GB/s of the slowest operation", slowest, at_least=1e-9)], {
        "backend": next(iter(found.values()))["backend"], "rows": rows}


def runs_of(section):
    """(ranks, kind) -> numbers of the rounds, of the runs that were begun."""
    runs = {}
    for ranks, optimizer, number_ in section.find(rf"^run (\d+)_({KINDS})_(\d+): "):
        runs.setdefault((int(ranks), optimizer), []).append(number_)
    return runs


def measured(section, ranks, optimizer, rounds):
    """The round that was the faster one; weights are those of all."""
    best, weights = None, []
    for number_ in rounds:
        run = f"{ranks}_{optimizer}_{number_}"
        step_ms = section.steps_of(run, "step_ms")
        first = len(step_ms) // 3  # steps that find algorithms and fill pools
        usual = statistics.median(step_ms[first:])
        unusual = statistics.median(abs(x - usual) for x in step_ms[first:])
        sums, peak = section.after_run(run, r"^weights (\w+), peak memory (\d+) MiB")
        weights.append(sums)
        row = {"ranks": ranks, "optimizer": optimizer, "peak_mib": int(peak),
               "tokens_per_s": statistics.median(section.steps_of(run, "tokens_per_s")[first:]),
               "step_ms": usual,
               # A standard deviation, as a share, that a few long steps do not change.
               "spread": 1.4826 * unusual / usual}
        if ranks > 1:
            operations, waits, hidden = section.after_run(
                run, r"^collectives took (\S+) s, waits for them (\S+) s: (\d+) % hidden")
            row.update(collectives_ms=1e3 * float(operations) / len(step_ms),
                       waits_ms=1e3 * float(waits) / len(step_ms), hidden=int(hidden) / 100)
        if best is None or row["tokens_per_s"] > best["tokens_per_s"]:
            best = row
    return best, weights


def speed(section):
    rows, checks = [], []
    on_gpu = "on cuda" in section.log
    for (ranks, optimizer), rounds in runs_of(section).items():
        row, weights = measured(section, ranks, optimizer, rounds)
        rows.append(row)
        # Processes on CPUs share the cores that one of them has alone.
        row["efficiency"] = row["tokens_per_s"] / rows[0]["tokens_per_s"] / (ranks if on_gpu else 1)
        what = f"ranks {ranks}, {optimizer}"
        if on_gpu and ranks in EFFICIENCY and optimizer != "beside":
            checks.append(check(f"{what}: efficiency", row["efficiency"],
                                at_least=EFFICIENCY[ranks]))
        if len(rounds) > 1:
            checks.append(check(f"{what}: different weights of {len(rounds)} runs",
                                len(set(weights)) - 1, at_most=0))
    checks.append(check("runs on one rank", sum(row["ranks"] == 1 for row in rows), at_least=1))
    return checks, {"rows": rows}


def losses(section):
    checks, rows = [], []
    for dtype, most in section.find(r"^run (\w+)_(\d+)_again: "):
        one = section.steps_of(f"{dtype}_1_plain", "loss")
        checks.append(check(f"{dtype}: steps compared", len(one), at_least=20))
        for ranks, optimizer in section.find(rf"^run {dtype}_(\d+)_(plain|zero): "):
            if ranks == "1":
                continue
            loss = section.steps_of(f"{dtype}_{ranks}_{optimizer}", "loss")
            apart = max(abs(a - b) / abs(b) for a, b in zip(loss, one, strict=True))
            checks.append(check(f"{dtype}, ranks {ranks}, {optimizer}: losses from those of one",
                                apart, at_most=LOSS_APART[dtype]))
            rows.append({"dtype": dtype, "ranks": int(ranks), "optimizer": optimizer,
                         "apart": apart})
        same = [(section.steps_of(run, "loss"),
                 section.after_run(run, r"^weights (\w+), ")[0])
                for run in (f"{dtype}_{most}_plain", f"{dtype}_{most}_again")]
        checks.append(check(f"{dtype}, ranks {most}: steps that differ in a second run",
                            sum(a != b for a, b in zip(same[0][0], same[1][0], strict=True)),
                            at_most=0))
        checks.append(check(f"{dtype}, ranks {most}: different weights of two runs",
                            same[0][1] != same[1][1], at_most=0))
    checks.append(check("losses compared", len(rows), at_least=2))
    return checks, {"rows": rows}


def kill(section):
    ranks = int(section.find(r"^ranks: (\d+)$")[0])
    return [check("ranks", ranks, at_least=2)] + killed_rank(section, ranks), {}


def pytorch(section):
    found, rows = files_by_ranks(section), []
    alone = {row["model"]: row["tokens_per_s"] for row in found[1]["rows"]}
    on_gpu = found[1]["device"] == "cuda"
    for ranks, result in found.items():
        for row in result["rows"]:
            rate = row["tokens_per_s"]
            rows.append({"ranks": ranks, **row, "efficiency":
                         rate / alone[row["model"]] / (ranks if on_gpu else 1)})
    return [check("runs", len(rows), at_least=1)], {"pytorch": found[1]["pytorch"], "rows": rows}


SECTIONS = {"bandwidth": bandwidth, "gpt2": speed, "qwen3": speed, "losses": losses, "kill": kill,
            "pytorch": pytorch}


# --- tables ---------------------------------------------------------------------------------------


def share(x):
    return number(x, "{:.3f}")


def bandwidth_table(details):
    sizes = sorted({row["bytes"] for row in details["rows"]})
    rows = {}
    for row in details["rows"]:
        rows.setdefault((row["ranks"], row["operation"]), {})[row["bytes"]] = row
    return [f"GB/s over {details['backend']} that cross each rank's link one way, and us.", ""] \
        + rows_of(["ranks", "operation"] + [f"{size / 2**20:.3g} MiB" for size in sizes],
                  [key + tuple(f"{cells[size]['bus_gb_per_s']:.3g}, {cells[size]['us']:.0f} us"
                               if size in cells else "-" for size in sizes)
                   for key, cells in rows.items()])


def speed_table(details):
    return rows_of(
        ["ranks", "kind", "tokens/s", "efficiency", "ms a step", "spread", "collectives ms",
         "waits ms", "hidden", "peak MiB"],
        [(row["ranks"], row["optimizer"], number(row["tokens_per_s"]), share(row["efficiency"]),
          number(row["step_ms"], "{:.2f}"), number(row["spread"], "{:.2%}"),
          number(row.get("collectives_ms"), "{:.2f}"), number(row.get("waits_ms"), "{:.2f}"),
          number(row.get("hidden"), "{:.0%}"), row["peak_mib"]) for row in details["rows"]])


def pytorch_table(details):
    return [f"PyTorch {details['pytorch']}, not compiled.", ""] + rows_of(
        ["ranks", "model", "tokens/s", "efficiency", "peak MiB"],
        [(row["ranks"], row["model"], number(row["tokens_per_s"]), share(row["efficiency"]),
          number(row["peak_mib"])) for row in details["rows"]])


def losses_table(details):
    return rows_of(["dtype", "ranks", "optimizer", "losses from those of one rank"],
                   [(row["dtype"], row["ranks"], row["optimizer"], f"{row['apart']:.2e}")
                    for row in details["rows"]])


def details_rows(sections, name):
    return sections.get(name, {}).get("details", {}).get("rows", [])


def summary(sections):
    """All models and numbers of ranks, with the all-reduce between them and PyTorch beside them."""
    buses, peers, rows = {}, {}, []
    for row in details_rows(sections, "bandwidth"):
        if row["operation"] == "all_reduce" and row["bytes"] <= 1.1 * SUMMARY_BYTES:
            buses[row["ranks"]] = row["bus_gb_per_s"]
    for row in details_rows(sections, "pytorch"):
        peers[row["model"], row["ranks"]] = row
    for model in ("gpt2", "qwen3"):
        for row in details_rows(sections, model):
            peer = peers.get((model, row["ranks"]), {})
            rows.append((model, row["ranks"], row["optimizer"], number(row["tokens_per_s"]),
                         share(row["efficiency"]), number(row.get("hidden"), "{:.0%}"),
                         number(buses.get(row["ranks"]), "{:.3g}"), row["peak_mib"],
                         number(peer.get("tokens_per_s")), share(peer.get("efficiency"))))
    return rows_of(["model", "ranks", "kind", "tokens/s", "efficiency",
                    "communication hidden", "all-reduce GB/s", "peak MiB", "PyTorch DDP tokens/s",
                    "its efficiency"], rows) + [""]


TABLES = {"bandwidth": bandwidth_table, "gpt2": speed_table, "qwen3": speed_table,
          "losses": losses_table, "pytorch": pytorch_table}

if __name__ == "__main__":
    report = Report("scaling", "Scaling", SECTIONS, TABLES, summary)
    sys.exit(report.main(__doc__.split("\n")[0]))
