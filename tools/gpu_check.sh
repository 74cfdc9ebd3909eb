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
#   transformers models through files to Hugging Face's transformers and back
#   memcheck     compute-sanitizer over the op tests, every tensor in an allocation of its own
#   racecheck    compute-sanitizer over reductions and attention
#   gemm         products by each backend
#   ops          memory-bound ops beside PyTorch
#   attention    flash attention beside PyTorch
#   attention_errors  its errors over all shapes, and what its kernels need
#   step         a training step, composed against flash attention
#   decode       tokens of configs/qwen3_0.6b.json, one after the other
#   repeat       training twice to the same bits
#   shakespeare  configs/shakespeare_char.json over three seeds, on the text in DATA
#   ddp          train_ddp on two GPUs: ctest -L multi_gpu, losses and speed against one GPU, starts
#                by torchrun and mpirun, a killed rank; by itself only where there are two GPUs
#
# Sections may run one by one, or at the same time on several GPUs (each call with its own
# CUDA_VISIBLE_DEVICES): the report keeps what it has of the others, each with its commit. Variables:
# BUILD, the build folder (build-gpu); REPORT, the folder of the report (docs/performance); PYTHON,
# one that has PyTorch (python3); CMAKE_ARGS, further arguments of cmake; RUNS, a folder for the files
# of runs on two GPUs (that of the section's output).
# shellcheck disable=SC2317 # sections are called by name
set -euo pipefail
cd "$(dirname "$0")/.."

name=gpu_check
reporter=tools/gpu_report.py
device=cuda
build=${BUILD:-build-gpu}
report=${REPORT:-docs/performance}
python=${PYTHON:-python3}
limit=480  # seconds a section may take
seeds="1 2 3"
untimed="tests gradcheck pytorch repeat attention_errors"

# Sections, and tests within one, share the cores: threads that wait must not spin on them.
export OMP_WAIT_POLICY=passive

source tools/sections.sh

every_layout="transposed inputs of every op on the GPU *"
every_op="every case of every op on the GPU equals the oracle"

section_tests() { ctest --test-dir "$build" -L cuda -j 8 --output-on-failure --no-tests=error; }

section_gradcheck() { "$build/bin/gradcheck" --device cuda; }

section_pytorch() {
  "$python" tools/compare_pytorch.py --build "$build" --device cuda --json "$work/pytorch.json"
}

section_transformers() {
  "$python" tools/compare_transformers.py --bin "$build/bin" --work "$(fresh_folder)"
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
  watch memcheck attention_mma ops_tests "flash attention by mma over a few tiles is right"
  watch memcheck few_rows ops_tests "*of few rows on the GPU is right"
  watch memcheck cached_attention ops_tests "cached attention on the GPU is right"
}

# watch_attention LABEL ARGUMENT...: tests of attention under racecheck, which does not follow an
# mbarrier at which one lane arrives for its warp, and takes what the copy engine brings for a store
# of the thread that asked. All that passes between the producer's first thread, which is thread 0,
# and the others of a wgmma kernel therefore looks like a race to it. No other pair of threads may
# have one, nor any in another kernel; where some do, the kernels are named with their numbers.
watch_attention() {
  local label=$1
  shift
  echo "--- racecheck.$label"
  compute-sanitizer --tool racecheck --kernel-name kns=xtrain --racecheck-report hazard \
    --print-limit 0 --show-backtrace no "$build/tests/ops_tests" "$@" |
    awk '
      function judge() {
        if (threads == 0) return
        seen++
        if (!producer || text !~ /wgmma/) {
          others++
          if (others <= 5) printf "%s", text
          match(text, /[a-z_]+</)
          in_kernel[substr(text, RSTART, RLENGTH - 1)]++
        }
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
        for (kernel in in_kernel) printf "%d hazards in %s\n", in_kernel[kernel], kernel
        printf "========= RACECHECK SUMMARY: %d hazards, and %d with the first thread\n", others,
          seen - others
        exit others > 0
      }'
}

# The shortest test that runs every kernel: each access to shared memory is followed.
section_racecheck() {
  local family failed=0
  watch racecheck reductions core_tests "*reductions of rows*,*warp reduces*" || failed=1
  for family in reduce norm softmax cross_entropy; do
    watch racecheck "$family" ops_tests "$every_layout" -c "$family" || failed=1
  done
  watch_attention attention "$every_layout" -c attention || failed=1
  watch_attention attention_wgmma "flash attention by wgmma over a few tiles is right" || failed=1
  watch_attention attention_mma "flash attention by mma over a few tiles is right" || failed=1
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

section_decode() {
  "$build/bin/bench_decode" --device cuda --config configs/qwen3_0.6b.json --json |
    tee "$work/decode.json"
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

# Losses of two GPUs with 16 sequences each and of one with 32.
ddp_losses() {
  local attention run tiny
  for attention in composed flash; do
    tiny=(--config configs/tiny.json --dtype f32 --max-steps 50 --set train.attention="$attention"
      --set train.num_samples=0 --set train.eval_interval=0)
    run_in_processes "loss_${attention}_one" train_on 1 "${tiny[@]}" --batch-size 32 &
    for run in plain again; do
      run_in_processes "loss_${attention}_$run" plain_on 2 "${tiny[@]}"
    done
    run_in_processes "loss_${attention}_beside" plain_on 2 --overlap "${tiny[@]}"
    run_in_processes "loss_${attention}_zero" train_on 2 --zero "${tiny[@]}"
    wait "$!"
  done
}

# GPT-2 124M in bf16, 32 sequences of 1024 tokens a GPU, in turns. The tokens do not matter. Zero is
# train_ddp as it comes. Beside: gradients travel beside backward instead of behind it.
ddp_speed() {
  local round gpt2
  gpt2=(--config configs/gpt2_124m.json --dtype bf16 --batch-size 32 --max-steps 40
    --set data.source=stories --set train.total_batch_size=null --set train.num_samples=0
    --set train.eval_interval=0)
  for round in 1 2; do
    run_in_processes "speed_one_$round" train_on 1 "${gpt2[@]}"
    run_in_processes "speed_plain_$round" plain_on 2 "${gpt2[@]}"
    run_in_processes "speed_zero_$round" train_on 2 "${gpt2[@]}"
    run_in_processes "speed_plain_beside_$round" plain_on 2 --overlap "${gpt2[@]}"
    run_in_processes "speed_zero_beside_$round" train_on 2 --zero --overlap "${gpt2[@]}"
  done
  run_in_processes speed_zero_bf16_1 train_on 2 --reduce bf16 "${gpt2[@]}"
}

ddp_starts() {
  local ddp=("$build/bin/train_ddp" --device cuda --config configs/tiny.json --max-steps 20
    --set train.num_samples=0)
  run_in_processes start_torchrun \
    "$python" -m torch.distributed.run --no-python --nproc-per-node 2 "${ddp[@]}"
  run_in_processes start_mpirun mpirun --allow-run-as-root -np 2 "${ddp[@]}"
}

section_ddp() {
  local failed=0 part
  for part in losses speed starts; do "ddp_$part" || failed=1; done
  kill_a_rank 2 || failed=1
  echo "switches: $(NCCL_DEBUG=INFO train_on 2 --config configs/tiny.json --max-steps 1 \
    --set train.num_samples=0 --out-dir "$work/ddp/switches" 2>&1 |
    grep -o -m 1 'NCCL_NVLS_ENABLE set by environment to 0')"
  ctest --test-dir "$build" -L multi_gpu --output-on-failure --no-tests=error || failed=1
  return "$failed"
}

if [[ $# -eq 2 && $1 == --section ]]; then call_section "$2"; fi

check_commit "${1:-}" "bash tools/gpu_check.sh COMMIT [SECTION...]"
commit=$1
shift
sections=("$@")
if [[ $# -eq 0 ]]; then
  sections=(tests gradcheck pytorch transformers repeat attention_errors gemm ops attention step
    decode memcheck racecheck shakespeare)
  if [[ $(nvidia-smi --list-gpus | wc -l) -ge 2 ]]; then sections+=(ddp); fi
fi
check_sections "${sections[@]}"
build_programs all

# What is only right or wrong runs side by side, what is timed by itself. Sanitizers are many times
# slower when they share the GPU, and what computes on the CPU when it shares that.
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
end_of_report
