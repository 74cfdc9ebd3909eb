#!/usr/bin/env bash
# Measures training beside PyTorch, both in turn on one machine, and writes the ratios to
# docs/performance.
#
#   bash tools/bench_against.sh cpu [ROUNDS]
#
# cpu: `train --config configs/tiny.json --flash` beside PyTorch, eager and compiled, on two threads
# and on one; the report is cpu.json and, as a table, cpu.md. A round, 5 by default, runs each of
# them once.
#
# Variables: BUILD, the build folder (build); PYTHON, one that has PyTorch (python3); REPORT, the
# folder of the report (docs/performance); THREADS, how many threads (2).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
report=${REPORT:-docs/performance}
python=${PYTHON:-python3}

if [[ $# -lt 1 || $# -gt 2 || $1 != cpu || ! ${2:-5} =~ ^[1-9][0-9]*$ ]]; then
  echo "bench_against: the arguments must be cpu and a number of rounds; got '$*'; see tools/bench_against.sh" >&2
  exit 2
fi
[[ -x $build/bin/train ]] || {
  echo "bench_against: $build/bin/train must exist; run: bash tools/build.sh" >&2
  exit 2
}
exec "$python" tools/bench_against_cpu.py --build "$build" --report "$report" --rounds "${2:-5}" \
  --threads "${THREADS:-2}"
