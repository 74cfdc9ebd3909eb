#!/usr/bin/env bash
# Measures training beside PyTorch, both in turn on one machine in one run, and writes the ratios to
# docs/performance.
#
#   bash tools/bench_against.sh [ROW...]
#   bash tools/bench_against.sh cpu [ROUNDS]
#
# Rows are measured on a GPU, all of them without arguments: gpt2_124m, gpt2_350m, qwen2.5_0.5b,
# qwen3_0.6b, small8, small8_long, tiny. A row takes about a minute, most of which is PyTorch's
# compiler; the report, train.json and as tables train.md, keeps what it has of the others.
# Different rows may be measured at the same time on several GPUs, each call with its own
# CUDA_VISIBLE_DEVICES.
#
# cpu: `train --config configs/tiny.json --flash` beside PyTorch, eager and compiled; the report is
# cpu.json and, as a table, cpu.md. A round, 5 by default, runs each of them once. Other programs
# disturb the numbers, and those that wait by spinning the most: leave the machine alone.
#
# Variables: BUILD, the build folder (build-gpu where it exists, else build; for cpu build); REPORT,
# the folder of the report (docs/performance); PYTHON, one that has PyTorch (python3). Of rows:
# ROUNDS, how often the two take turns (2); COMMIT, what the report says was measured (that of the
# working tree); PURE=1, PyTorch with weights and moments in bf16 too. Of cpu: THREADS, how many (2).
set -euo pipefail
cd "$(dirname "$0")/.."

report=${REPORT:-docs/performance}
python=${PYTHON:-python3}
build=${BUILD:-build}

if [[ ${1:-} == cpu ]]; then
  [[ $# -le 2 && ${2:-5} =~ ^[1-9][0-9]*$ ]] || {
    echo "bench_against: cpu may be followed by a number of rounds; got '$*'" >&2
    exit 2
  }
  [[ -x $build/bin/train ]] || {
    echo "bench_against: $build/bin/train must exist; run: bash tools/build.sh" >&2
    exit 2
  }
  mkdir -p "$report"
  exec "$python" tools/bench_against_cpu.py --build "$build" --report "$report" \
    --rounds "${2:-5}" --threads "${THREADS:-2}"
fi

rounds=${ROUNDS:-2}
if [[ -z ${BUILD:-} && -d build-gpu ]]; then build="build-gpu"; fi
commit=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
work=$build/bench_against
all_rows="gpt2_124m gpt2_350m qwen2.5_0.5b qwen3_0.6b small8 small8_long tiny"

# What a row measures: config, batch, micro-steps, steps, options of xtrain; modes of PyTorch. The
# yardstick is the batch of PyTorch beside which another program was measured, where it is another.
describe() {
  accumulate=1 steps=20 modes=default yardstick=""
  ours=(--dtype bf16 --attention flash --gemm-choices "$work/gemm_choices.$1.json")
  theirs=()
  case $1 in
    gpt2_124m) config=gpt2_124m batch=32x1024 ;;
    gpt2_350m) config=gpt2_350m batch=16x1024 ;;
    qwen2.5_0.5b) config=qwen2.5_0.5b batch=32x1024 accumulate=4 steps=5 yardstick=16x1024 ;;
    qwen3_0.6b) config=qwen3_0.6b batch=8x2048 ;;
    small8) config=small8 batch=8x1024 steps=60 ;;
    small8_long) config=small8 batch=2x2048 steps=60 ;;
    tiny) config=tiny batch=16x128 steps=300 modes=reduce-overhead ;;
    *) echo "bench_against: a row must be one of $all_rows, or cpu alone; got $1" >&2; return 2 ;;
  esac
  if [[ ${PURE:-0} == 1 ]]; then theirs+=(--pure); fi
}

# Both stay warm while the other is timed: PyTorch waits for a line, xtrain starts in a few seconds.
run_row() {
  local row=$1 round line
  describe "$row"
  local shape=(--batch "$batch" --accumulate "$accumulate" --steps "$steps" --device cuda)
  local mine=("$build/bin/bench_train" --preset "$config" "${shape[@]}" "${ours[@]}")
  local peer=("$python" tools/bench_train_pytorch.py --config "configs/$config.json" "${shape[@]}"
    --dtype bf16 --modes "$modes" "${theirs[@]}")
  rm -f "$work/$row".*
  printf '%s\n' "${mine[*]}" "${peer[*]}" >"$work/$row.commands"
  # xtrain measures the fastest products once, alone.
  "${mine[@]}" --no-kernels >"$work/$row.first.log" || return 1
  coproc PEER { exec "${peer[@]}" --rounds 2>"$work/$row.pytorch.log"; }
  # Copies: bash forgets its own when the program has ended.
  local to=${PEER[1]} from=${PEER[0]} pid=$PEER_PID
  read -r line <&"$from" || { cat "$work/$row.pytorch.log" >&2; return 1; }
  for ((round = 1; round <= rounds; ++round)); do
    local kernels=()
    if ((round > 1)); then kernels=(--no-kernels); fi
    "${mine[@]}" --json "${kernels[@]}" >"$work/$row.xtrain.$round.json" || return 1
    echo >&"$to"
    read -r line <&"$from" || { cat "$work/$row.pytorch.log" >&2; return 1; }
    printf '%s\n' "$line" >"$work/$row.pytorch.$round.json"
  done
  exec {to}>&-
  wait "$pid" || true
  if [[ -n $yardstick ]]; then
    local other=("$python" tools/bench_train_pytorch.py --config "configs/$config.json"
      --batch "$yardstick" --steps 20 --device cuda --dtype bf16 --modes "$modes" "${theirs[@]}")
    printf '%s\n' "${other[*]}" >>"$work/$row.commands"
    "${other[@]}" >"$work/$row.yardstick.json" 2>"$work/$row.pytorch.log" ||
      { cat "$work/$row.pytorch.log" >&2; return 1; }
  fi
  "$python" tools/bench_against_report.py "$report" --row "$row" --work "$work" --commit "$commit"
}

rows=("$@")
# shellcheck disable=SC2206 # names without spaces
if [[ $# -eq 0 ]]; then rows=($all_rows); fi
for row in "${rows[@]}"; do describe "$row"; done
[[ $rounds =~ ^[1-9][0-9]*$ ]] ||
  { echo "bench_against: ROUNDS must be a number of rounds; got '$rounds'" >&2; exit 2; }
[[ -x $build/bin/bench_train ]] ||
  { echo "bench_against: $build/bin/bench_train must be built; set BUILD" >&2; exit 2; }
mkdir -p "$work" "$report"
failed=0
for row in "${rows[@]}"; do
  # A shell of its own, whose end also ends the row's PyTorch.
  (run_row "$row") || { echo "bench_against: row $row failed" >&2; failed=1; }
done
exit "$failed"
