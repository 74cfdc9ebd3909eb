#!/usr/bin/env bash
# Checks and measures, on a machine with a GPU, all that needs one, and reports it in
# docs/performance/gpu_check.json and, as tables, gpu_check.md.
#
#   [DATA=tinyshakespeare.txt] bash tools/gpu_check.sh COMMIT [SECTION...]
#
# COMMIT is what the report says was checked. Without sections all of them run, each in less than 8
# minutes:
#
#   tests        ctest -L cuda
#   gradcheck    every op's gradients in f64 on the GPU
#   pytorch      logits, loss and gradients of whole models against PyTorch
#   memcheck     compute-sanitizer over the op tests, every tensor in an allocation of its own
#   racecheck    compute-sanitizer over reductions and attention
#   gemm         products by each backend
#   ops          memory-bound ops beside PyTorch
#   attention    flash attention beside PyTorch
#   step         a training step, composed against flash attention
#   repeat       training twice to the same bits
#   shakespeare  configs/shakespeare_char.json over three seeds, on the text in DATA
#
# Sections of one commit may run one by one: the report keeps what it has of the others. Variables:
# BUILD, the build folder (build-gpu); REPORT, the folder of the report (docs/performance); PYTHON,
# one that has PyTorch (python3); CMAKE_ARGS, further arguments of cmake.
# shellcheck disable=SC2317 # sections are called by name
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build-gpu}
report=${REPORT:-docs/performance}
python=${PYTHON:-python3}
work=$build/gpu_check
limit=480  # seconds a section may take
seeds="1 2 3"

if [[ -d /usr/local/cuda/bin ]]; then export PATH=$PATH:/usr/local/cuda/bin; fi

every_op="every case of every op on the GPU equals the oracle"

section_tests() { ctest --test-dir "$build" -L cuda --output-on-failure --no-tests=error; }

section_gradcheck() { "$build/bin/gradcheck" --device cuda; }

section_pytorch() {
  "$python" tools/compare_pytorch.py --build "$build" --device cuda --json "$work/pytorch.json"
}

# watch TOOL LABEL PROGRAM ARGUMENT...: starts tests under the sanitizer. Only the project's own
# kernels are watched; those of cuBLAS would take most of the time.
watched=() pids=()
watch() {
  local tool=$1 label=$2 program=$3
  shift 3
  compute-sanitizer --tool "$tool" --kernel-regex kns=xtrain --error-exitcode 9 \
    "$build/tests/$program" "$@" >"$work/$tool.$label.log" 2>&1 &
  watched+=("$tool.$label") pids+=($!)
}

# Waits for what is watched and prints it.
show_watched() {
  local i failed=0
  for i in "${!watched[@]}"; do
    wait "${pids[i]}" || failed=1
    echo "--- ${watched[i]}"
    cat "$work/${watched[i]}.log"
  done
  return "$failed"
}

section_memcheck() {
  local path
  export XT_TEST_CUDA=one_allocation_each
  for path in ops/*/*_case.cpp; do
    path=${path#ops/}
    watch memcheck "${path%/*}" ops_tests "$every_op" -c "${path%/*}"
  done
  show_watched
}

section_racecheck() {
  watch racecheck reductions core_tests "*reductions of rows*,*warp reduces*"
  for family in reduce norm softmax cross_entropy attention; do
    watch racecheck "$family" ops_tests "$every_op" -c "$family"
  done
  show_watched
}

section_gemm() {
  "$build/bin/bench_gemm" --device cuda --dtype bf16 --seconds 0.1
  "$build/bin/bench_gemm" --device cuda --dtype f32 --seconds 0.1 tiled library library_tf32
}

section_ops() {
  "$python" tools/bench_ops_pytorch.py --build "$build" --json "$work/ops.json"
}

section_attention() {
  "$python" tools/bench_attention_pytorch.py --build "$build" --json "$work/attention.json"
}

section_step() { "$build/bin/bench_step" --device cuda --json | tee "$work/step.json"; }

# train ARGUMENT...: a fresh run whose files are not kept.
fresh_run() {
  rm -rf "$work/run"
  "$build/bin/train" --device cuda --out-dir "$work/run" "$@"
}

section_repeat() {
  for dtype in f32 bf16; do
    for attention in composed flash; do
      for run in first second; do
        echo "run $run $dtype $attention"
        fresh_run --config configs/tiny.json --max-steps 50 --set train.dtype="$dtype" \
          --set train.attention="$attention" --set train.num_samples=0 | grep '^weights '
      done
    done
  done
}

section_shakespeare() {
  [[ -f ${DATA:-} ]] || { echo "gpu_check: DATA must name the text to train on" >&2; return 2; }
  for seed in $seeds; do
    local start=$SECONDS
    fresh_run --config configs/shakespeare_char.json --data "$DATA" --flash \
      --set train.dtype=bf16 --set train.seed="$seed"
    echo "run of seed $seed took $((SECONDS - start)) s"
  done
}

build_all() {
  local generator=()
  if command -v ninja >/dev/null && [[ ! -f $build/CMakeCache.txt ]]; then generator=(-G Ninja); fi
  # shellcheck disable=SC2086 # CMAKE_ARGS are several words
  cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DXTRAIN_CUDA=ON \
    ${CMAKE_ARGS:-} >"$work/configure.log" || { cat "$work/configure.log" >&2; return 1; }
  cmake --build "$build" --parallel "$(nproc)" >"$work/build.log" ||
    { grep -E 'error|FAILED' "$work/build.log" >&2; return 1; }
}

if [[ $# -eq 2 && $1 == --section ]]; then
  "section_$2"
  exit
fi

commit=${1:?usage: bash tools/gpu_check.sh COMMIT [SECTION...]}
shift
sections=("$@")
if [[ $# -eq 0 ]]; then
  sections=(tests gradcheck pytorch memcheck racecheck gemm ops attention step repeat shakespeare)
fi
for section in "${sections[@]}"; do
  declare -F "section_$section" >/dev/null ||
    { echo "gpu_check: no section is called $section" >&2; exit 2; }
done

mkdir -p "$work" "$report"
build_all
failed=0
for section in "${sections[@]}"; do
  rm -f "$work/$section.json"
  start=$SECONDS status=0
  timeout "$limit" bash "$0" --section "$section" >"$work/$section.log" 2>&1 || status=$?
  "$python" tools/gpu_report.py add "$report" --section "$section" --work "$work" \
    --build "$build" --commit "$commit" --status "$status" --seconds $((SECONDS - start)) || failed=1
done
"$python" tools/gpu_report.py table "$report"
exit "$failed"
