#!/usr/bin/env python3
"""Trains tiny.json with xtrain and with PyTorch in turn and writes the ratios: tools/bench_against.sh.

    python3 tools/bench_against_cpu.py --build build --report docs/performance --rounds 5
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile

CONFIG = "configs/tiny.json"
STEPS, WARM_UP = 40, 10
TWIN = "tools/train_pytorch.py"


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} must succeed; it ended with exit code {done.returncode}: "
                 f"{done.stderr.strip()[-500:]}")
    return done.stdout


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(command)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def train_command(build, threads):
    """No validation, checkpoints or samples between the steps."""
    rarely = [f"--set=train.{key}=1000000"
              for key in ("eval_interval", "checkpoint_interval", "log_interval")]
    return [os.path.join(build, "bin", "train"), "--config", CONFIG, "--flash", "--device", "cpu",
            "--threads", str(threads), *rarely, "--set=train.eval_steps=1",
            "--set=train.num_samples=0"]


def run_xtrain(build, threads):
    """The median step's milliseconds, and its CPU time: of a long run less that of a short one."""
    command = train_command(build, threads)
    with tempfile.TemporaryDirectory() as folder:
        def seconds(steps):
            return cpu_seconds([*command, "--max-steps", str(steps),
                                "--out-dir", f"{folder}/{steps}"])

        cpu = (seconds(STEPS) - seconds(WARM_UP)) / (STEPS - WARM_UP)
        lines = pathlib.Path(folder, str(STEPS), "metrics.jsonl").read_text().splitlines()
    taken = [json.loads(line)["step_ms"] for line in lines[WARM_UP:-1]]  # the last one validates
    return {"ms": statistics.median(taken), "cpu_ms": 1e3 * cpu}


def run_twin(threads, *flags):
    return json.loads(run([sys.executable, TWIN, "--config", CONFIG, "--threads", str(threads),
                           "--steps", str(STEPS - WARM_UP), *flags]))


def one_round(build, threads):
    return {"xtrain": run_xtrain(build, threads),
            "eager": run_twin(threads),
            "compiled": run_twin(threads, "--compiled"),
            "products": run_twin(threads, "--products")}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def summary(rounds, tokens):
    """Medians over the rounds; ratios are medians of each round's own, whose parts ran side by side."""
    def median(of):
        return statistics.median(of(r) for r in rounds)

    rows = {name: {"ms": median(lambda r: r[name]["ms"]),
                   "fastest_ms": min(r[name]["ms"] for r in rounds),
                   "cpu_ms": median(lambda r: r[name]["cpu_ms"]),
                   "tokens_per_s": 1e3 * tokens / median(lambda r: r[name]["ms"])}
            for name in ("xtrain", "eager", "compiled")}
    rows["products"] = {"ms": median(lambda r: r["products"]["ms"]),
                        "fastest_ms": min(r["products"]["ms"] for r in rounds),
                        "gflops": median(lambda r: r["products"]["gflops"])}
    ratios = {"times_eager": median(lambda r: r["eager"]["ms"] / r["xtrain"]["ms"]),
              "times_compiled": median(lambda r: r["compiled"]["ms"] / r["xtrain"]["ms"]),
              "step_over_products": median(lambda r: r["xtrain"]["ms"] / r["products"]["ms"]),
              "cpu_times_eager": median(lambda r: r["eager"]["cpu_ms"] / r["xtrain"]["cpu_ms"]),
              "cpu_times_compiled":
                  median(lambda r: r["compiled"]["cpu_ms"] / r["xtrain"]["cpu_ms"])}
    return {"rows": rows, "ratios": ratios}


def table(report):
    rows, ratios = report["rows"], report["ratios"]
    names = {"xtrain": "xtrain, `--flash`", "eager": "PyTorch, eager",
             "compiled": "PyTorch, compiled"}
    lines = ["# Training on the CPU beside PyTorch", "",
             f"`{report['command']}`, {report['date']}, {report['processor']}, "
             f"{report['threads']} threads, PyTorch {report['pytorch']}, f32, "
             f"{report['rounds']} rounds, load average before {report['load']:.1f}.", "",
             "`tiny.json`, 16 x 128 tokens a step. Medians of the rounds; a ratio is the median of "
             "each round's own. CPU time counts all threads, those that wait and spin too.", "",
             "| program | ms a step | fastest round | tokens/s | CPU ms a step |",
             "|---|---|---|---|---|"]
    for key, name in names.items():
        row = rows[key]
        lines.append(f"| {name} | {row['ms']:.1f} | {row['fastest_ms']:.1f} | "
                     f"{row['tokens_per_s']:,.0f} | {row['cpu_ms']:.0f} |")
    row = rows["products"]
    lines += [f"| the linear layers' products alone, PyTorch's BLAS | {row['ms']:.1f} | "
              f"{row['fastest_ms']:.1f} | {row['gflops']:.0f} GFLOP/s | |", "",
              f"xtrain is {ratios['times_eager']:.2f} times as fast as PyTorch eager and "
              f"{ratios['times_compiled']:.2f} times as fast as compiled (by CPU time "
              f"{ratios['cpu_times_eager']:.2f} and {ratios['cpu_times_compiled']:.2f}); a step "
              f"takes {ratios['step_over_products']:.2f} times its products.", ""]
    return "\n".join(lines)


def write(report, folder):
    (folder / "cpu.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "cpu.md").write_text(table(report))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--report", default="docs/performance")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    train = json.loads(pathlib.Path(CONFIG).read_text())["train"]
    report = {"command": f"bash tools/bench_against.sh cpu {o.rounds}",
              "date": datetime.date.today().isoformat(), "processor": processor(),
              "threads": o.threads, "load": os.getloadavg()[0]}
    tokens = train["batch_size"] * train["seq_len"]
    measured = []
    for i in range(o.rounds):
        measured.append(one_round(o.build, o.threads))
        print(f"round {i + 1}: {json.dumps(measured[-1])}", flush=True)
        report |= {"rounds": i + 1, "pytorch": measured[0]["eager"]["pytorch"],
                   **summary(measured, tokens), "measured": measured}
        write(report, pathlib.Path(o.report))
    print(table(report))


if __name__ == "__main__":
    main()
