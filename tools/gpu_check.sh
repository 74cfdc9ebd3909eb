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
#   attention_errors  its errors over all shapes, and what its kernels need
#   step         a training step, composed against flash attention
#   repeat       training twice to the same bits
#   shakespeare  configs/shakespeare_char.json over three seeds, on the text in DATA
#   ddp          train_ddp on two GPUs: ctest -L multi_gpu, losses and speed against one GPU, starts
#                by torchrun and mpirun, a killed rank; by itself only where there are two GPUs
#
# Sections of one commit may run one by one, or at the same time on several GPUs (each call with its
# own CUDA_VISIBLE_DEVICES): the report keeps what it has of the others. Variables:
# BUILD, the build folder (build-gpu); REPORT, the folder of the report (docs/performance); PYTHON,
# one that has PyTorch (python3); CMAKE_ARGS, further arguments of cmake; RUNS, a folder for the files
# of runs on two GPUs (that of the section's output).
# shellcheck disable=SC2317 # sections are called by name
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build-gpu}
report=${REPORT:-docs/performance}
python=${PYTHON:-python3}
work=$build/gpu_check
limit=480  # seconds a section may take
seeds="1 2 3"
untimed="tests gradcheck pytorch repeat attention_errors"

if [[ -d /usr/local/cuda/bin ]]; then export PATH=$PATH:/usr/local/cuda/bin; fi

every_op="every case of every op on the GPU equals the oracle"

section_tests() { ctest --test-dir "$build" -L cuda -j 8 --output-on-failure --no-tests=error; }

section_gradcheck() { "$build/bin/gradcheck" --device cuda; }

section_pytorch() {
  "$python" tools/compare_pytorch.py --build "$build" --device cuda --json "$work/pytorch.json"
}

# watch TOOL LABEL PROGRAM ARGUMENT...: tests under the sanitizer. Only the project's own kernels are
# watched; those of cuBLAS would take most of the time.
watch() {
  local tool=$1 label=$2 program=$3
  shift 3
  echo "--- $tool.$label"
  compute-sanitizer --tool "$tool" --kernel-name kns=xtrain --error-exitcode 9 \
    "$build/tests/$program" "$@"
}

section_memcheck() {
  export XT_TEST_CUDA=one_allocation_each
  watch memcheck ops ops_tests "$every_op"
  watch memcheck attention_wgmma ops_tests "flash attention by wgmma over a few tiles is right"
}

# Racecheck does not follow an mbarrier at which one lane arrives for its warp, and takes what the copy
# engine brings for a store of the thread that asked. All that passes between the producer's first
# thread, which is thread 0, and the others of a wgmma kernel therefore looks like a race to it. No
# other pair of threads may have one.
watch_wgmma() {
  echo "--- racecheck.attention_wgmma"
  compute-sanitizer --tool racecheck --kernel-name kns=xtrain --racecheck-report hazard \
    --print-limit 0 --show-backtrace no "$build/tests/ops_tests" \
    "flash attention by wgmma over a few tiles is right" |
    awk '
      function judge() {
        if (threads == 0) return
        seen++
        if (!producer) { others++; if (others <= 5) printf "%s", text }
        threads = producer = 0
        text = ""
      }
      /Potential .* hazard/ { judge() }
      match($0, /Thread \([0-9]+,/) {
        threads++
        if (substr($0, RSTART, RLENGTH) == "Thread (0,") producer = 1
      }
      /hazard detected|Thread \(/ { text = text $0 "\n"; next }
      /RACECHECK SUMMARY/ { judge(); displayed = $4; next }
      /^All tests passed|FAILED|^test cases/ { print }
      END {
        if (displayed == "" || displayed != seen + 0) {
          printf "%d hazards were read, not %s\n", seen, displayed
          exit 1
        }
        printf "========= RACECHECK SUMMARY: %d hazards, and %d with the first thread\n", others,
          seen - others
        exit others > 0
      }'
}

# The shortest test that runs every kernel: each access to shared memory is followed.
section_racecheck() {
  local family failed=0
  watch racecheck reductions core_tests "*reductions of rows*,*warp reduces*" || failed=1
  watch_wgmma || failed=1
  for family in reduce norm softmax cross_entropy attention; do
    watch racecheck "$family" ops_tests "transposed inputs of every op on the GPU *" \
      -c "$family" || failed=1
  done
  return "$failed"
}

section_gemm() {
  "$build/bin/bench_gemm" --device cuda --dtype bf16 --seconds 0.05
  "$build/bin/bench_gemm" --device cuda --dtype f32 --seconds 0.05 tiled library library_tf32
}

section_ops() {
  "$python" tools/bench_ops_pytorch.py --build "$build" --no-compiled --json "$work/ops.json"
}

section_attention() {
  "$python" tools/bench_attention_pytorch.py --build "$build" --json "$work/attention.json"
}

section_attention_errors() {
  "$build/tests/ops_tests" "flash attention by wgmma is as exact*"
  sh cmake/ptxas_table.sh "$build"
}

section_step() { "$build/bin/bench_step" --device cuda --json | tee "$work/step.json"; }

# train ARGUMENT...: a fresh run whose files are not kept.
fresh_run() {
  local folder
  folder=$(mktemp -d "$work/run.XXXXXX")
  "$build/bin/train" --device cuda --out-dir "$folder" "$@"
  rm -rf "$folder"
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

# --- two GPUs

train_ddp() { "$build/bin/train_ddp" --device cuda "$@"; }
one_gpu() { CUDA_VISIBLE_DEVICES=0 "$build/bin/train" --device cuda "$@"; }

# ddp_run NAME COMMAND...: a fresh run that leaves NAME.jsonl, the metrics of its steps.
ddp_run() {
  local name=$1 folder
  shift
  folder=$(mktemp -d "${RUNS:-$work/ddp}/run.XXXXXX")
  echo "run $name: $*"
  "$@" --out-dir "$folder" || { echo "run $name failed with exit code $?"; return 1; }
  cp "$folder/metrics.jsonl" "$work/ddp/$name.jsonl"
  rm -rf "$folder"
}

# Losses of two GPUs with 16 sequences each and of one with 32.
ddp_losses() {
  local attention run tiny
  for attention in composed flash; do
    tiny=(--config configs/tiny.json --dtype f32 --max-steps 50 --set train.attention="$attention"
      --set train.num_samples=0 --set train.eval_interval=0)
    ddp_run "loss_${attention}_one" one_gpu "${tiny[@]}" --batch-size 32 &
    for run in plain again; do
      ddp_run "loss_${attention}_$run" train_ddp --nproc 2 "${tiny[@]}"
    done
    ddp_run "loss_${attention}_zero" train_ddp --nproc 2 --zero "${tiny[@]}"
    wait "$!"
  done
}

# GPT-2 124M in bf16, 32 sequences of 1024 tokens a GPU, in turns. The tokens do not matter.
ddp_speed() {
  local round gpt2
  gpt2=(--config configs/gpt2_124m.json --dtype bf16 --batch-size 32 --max-steps 40
    --set data.source=stories --set train.total_batch_size=null --set train.num_samples=0
    --set train.eval_interval=0)
  for round in 1 2; do
    ddp_run "speed_one_$round" one_gpu "${gpt2[@]}"
    ddp_run "speed_plain_$round" train_ddp --nproc 2 "${gpt2[@]}"
    ddp_run "speed_zero_$round" train_ddp --nproc 2 --zero "${gpt2[@]}"
  done
}

ddp_starts() {
  local ddp=("$build/bin/train_ddp" --device cuda --config configs/tiny.json --max-steps 20
    --set train.num_samples=0)
  ddp_run start_torchrun "$python" -m torch.distributed.run --no-python --nproc-per-node 2 \
    "${ddp[@]}"
  ddp_run start_mpirun mpirun --allow-run-as-root -np 2 "${ddp[@]}"
}

# wait_for_text TEXT FILE PID: until the file holds the text or the process has ended.
wait_for_text() {
  until grep -qs "$1" "$2"; do
    kill -0 "$3" 2>/dev/null || return 1
    sleep 0.05
  done
}

# A rank is killed: the other one must name it, and the run go on from its checkpoint to the weights
# of an unbroken one.
ddp_kill() {
  local folder launcher ranks start tiny code=0
  folder=$(mktemp -d "${RUNS:-$work/ddp}/run.XXXXXX")
  tiny=(--config configs/tiny.json --max-steps 600 --nproc 2 --timeout 10
    --set train.checkpoint_interval=50 --set train.num_samples=0)
  echo "unbroken $(train_ddp "${tiny[@]}" --out-dir "$folder/unbroken" | grep '^weights ')"
  "$build/bin/train_ddp" --device cuda "${tiny[@]}" --max-restarts 1 --out-dir "$folder/broken" \
    >"$folder/out" 2>"$folder/err" &
  launcher=$!
  wait_for_text '"step":120,' "$folder/broken/metrics.jsonl" "$launcher"
  read -r -a ranks <"/proc/$launcher/task/$launcher/children"
  start=${EPOCHREALTIME/./}  # in microseconds
  kill -KILL "${ranks[1]}"
  wait_for_text 'starting all ranks again' "$folder/err" "$launcher"
  echo "all ranks gone after $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
  wait "$launcher" || code=$?
  echo "restarted run ended with exit code $code"
  grep 'rank . was' "$folder/err"
  echo "broken $(grep '^weights ' "$folder/out")"
  echo "processes left: $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx train_ddp)"
  rm -rf "$folder"
}

section_ddp() {
  rm -rf "$work/ddp"
  mkdir -p "$work/ddp"
  local failed=0 part
  for part in losses speed starts kill; do "ddp_$part" || failed=1; done
  echo "switches: $(NCCL_DEBUG=INFO train_ddp --nproc 2 --config configs/tiny.json --max-steps 1 \
    --set train.num_samples=0 --out-dir "$work/ddp/switches" 2>&1 |
    grep -o -m 1 'NCCL_NVLS_ENABLE set by environment to 0')"
  ctest --test-dir "$build" -L multi_gpu --output-on-failure --no-tests=error || failed=1
  return "$failed"
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
  sections=(tests gradcheck pytorch repeat attention_errors gemm ops attention step memcheck
    racecheck shakespeare)
  if [[ $(nvidia-smi --list-gpus | wc -l) -ge 2 ]]; then sections+=(ddp); fi
fi
for section in "${sections[@]}"; do
  declare -F "section_$section" >/dev/null ||
    { echo "gpu_check: no section is called $section" >&2; exit 2; }
done

mkdir -p "$work" "$report"
# One build at a time: other sections may be under way on another GPU.
(flock 9 && build_all) 9>"$work/build.lock"

# Leaves the section's exit status and duration in the folder of its output.
run_section() {
  local section=$1 start=$SECONDS status=0
  rm -f "$work/$section.json"
  timeout "$limit" bash tools/gpu_check.sh --section "$section" >"$work/$section.log" 2>&1 ||
    status=$?
  echo "$status $((SECONDS - start))" >"$work/$section.done"
}

failed=0
add_to_report() {
  local status seconds
  read -r status seconds <"$work/$1.done"
  "$python" tools/gpu_report.py add "$report" --section "$1" --work "$work" \
    --build "$build" --commit "$commit" --status "$status" --seconds "$seconds" || failed=1
}

# What is only right or wrong runs side by side, what is timed by itself. Sanitizers are many times
# slower when they share the GPU.
together=() alone=()
for section in "${sections[@]}"; do
  if [[ " $untimed " == *" $section "* ]]; then together+=("$section"); else alone+=("$section"); fi
done
for section in "${together[@]}"; do run_section "$section" & done
wait
for section in "${together[@]}"; do add_to_report "$section"; done
for section in "${alone[@]}"; do
  run_section "$section"
  add_to_report "$section"
done
"$python" tools/gpu_report.py table "$report"
exit "$failed"
