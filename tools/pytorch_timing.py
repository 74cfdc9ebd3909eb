"""How the PyTorch sides of the benchmarks take times, and how they run xtrain's own.

`torch` is None where there is no PyTorch.
"""

import json
import os
import statistics
import subprocess

try:
    import torch
except ImportError:
    torch = None

ROUNDS, CALLS = 7, 8
LONG_CALL, LONG_CALLS = 2e-3, 2  # beside long calls, what starting a row takes is little


def seconds_of_row(call, calls):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def seconds_per_call(call):
    """Of the GPU, for one call in a row of calls: the median of several rounds."""
    seconds_of_row(call, 2)
    is_long = seconds_of_row(call, 2) > 2 * LONG_CALL
    calls = LONG_CALLS if is_long else CALLS
    return statistics.median(seconds_of_row(call, calls) / calls for _ in range(ROUNDS))


def run_bench(build, program, *arguments):
    """The JSON that one of xtrain's benchmarks prints."""
    command = [os.path.join(build, "bin", program), "--device", "cuda", "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)} failed with exit code {done.returncode}")
    return json.loads(done.stdout)
