"""How the PyTorch sides of the benchmarks take times, and how they run xtrain's own."""

import json
import os
import statistics
import subprocess

import torch

WARM_UP, ROUNDS, CALLS = 3, 7, 8


def seconds_per_call(call):
    """Of the GPU, for one call in a row of calls: the median of several rounds."""
    for _ in range(WARM_UP):
        call()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / CALLS)
    return statistics.median(times)


def run_bench(build, program, *arguments):
    """The JSON that one of xtrain's benchmarks prints."""
    command = [os.path.join(build, "bin", program), "--device", "cuda", "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)} failed with exit code {done.returncode}")
    return json.loads(done.stdout)
