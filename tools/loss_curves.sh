#!/usr/bin/env bash
# Trains GPT-2 124M on 10 M tokens of the built-in stories, with xtrain twice and with PyTorch, from
# the same weights on the same batches, and checks that the losses agree and that the second run has
# the bits of the first. How far rounding alone takes a run is told by a second run of PyTorch, with
# the sequences of each batch in reverse order. Reports in docs/performance/loss_curves.json and, as
# tables and pictures, loss_curves.md and loss_curves_SECTION.svg.
#
#   bash tools/loss_curves.sh [--device cpu] COMMIT [SECTION...]
#
# COMMIT is what the report says was measured. A section is the arithmetic of both programs: bf16;
# tf32, which is f32 with products that may round to TF32; f32. Without any, bf16 and tf32 run. With
# --device cpu the model is a small one, which tries everything out, and f32 runs by default.
#
# Variables: BUILD, the build folder (build-gpu, or build on CPUs); REPORT, the folder of the report
# (docs/performance, or loss_curves in the build folder on CPUs); PYTHON, one that has PyTorch
# (python3); CMAKE_ARGS, further arguments of cmake; RUNS, a folder for the files of runs (/dev/shm
# where it has room, since every run ends with a checkpoint).
# shellcheck disable=SC2317 # sections are called by name
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { echo "loss_curves: $*" >&2; exit 2; }
if [[ ${1:-} == --device ]]; then
  [[ $# -gt 1 ]] || refuse "--device must be followed by cuda or cpu"
  export DEVICE=$2
  shift 2
fi
name=loss_curves
reporter=tools/loss_curves_report.py
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
limit=480  # seconds a section may take

case $device in
  cuda)
    build=${BUILD:-build-gpu}
    report=${REPORT:-docs/performance}
    all_sections=(bf16 tf32)
    stories=89000 held_out=2500  # 9.97 M tokens, of which the steps see 9.83 M once, and 0.29 M
    # The higher the rate, the faster differences of rounding grow.
    gpt2=(--config configs/gpt2_124m.json --batch-size 32 --max-steps 300
      --learning-rate 1e-4 --set train.warmup_steps=50
      --set train.eval_interval=25 --set train.eval_steps=8)
    ;;
  cpu)
    build=${BUILD:-build}
    report=${REPORT:-$build/loss_curves}
    all_sections=(f32)
    stories=600 held_out=50
    gpt2=(--config configs/tiny.json --set model.model_type=gpt2 --set model.vocab_size=4100
      --batch-size 4 --max-steps 60 --learning-rate 6e-4
      --set train.warmup_steps=10 --set train.eval_interval=10 --set train.eval_steps=10)
    ;;
  *) refuse "--device must be cuda or cpu; got $device" ;;
esac

# Threads that wait must not spin on the cores of others.
export OMP_WAIT_POLICY=passive

source tools/sections.sh

# A tokenizer, and tokens of the stories: those of the first held_out stories are for validation.
make_tokens() {
  local marker='<|endoftext|>'
  "$build/bin/stories" --count "$stories" --separator "$marker" >"$runs/text.txt"
  "$build/bin/train_tokenizer" "$runs/text.txt" --vocab-size 4096 --split-on "$marker" \
    --out "$runs/tokenizer.json"
  "$build/bin/tokenize" "$runs/text.txt" --tokenizer "$runs/tokenizer.json" --split-on "$marker" \
    --val-documents "$held_out" --out-dir "$runs/tokens"
}

# compare ARGUMENT...: both programs, with the arithmetic that the arguments of train say.
compare() {
  local twin=("$python" tools/loss_curves_pytorch.py) run=$work/$section/run.json
  local all=("${gpt2[@]}" "$@" --device "$device" --flash
    --data "$runs/tokens/tokens_train_000000.bin"
    --set "data.val_files=[\"$runs/tokens/tokens_val_000000.bin\"]"
    --set train.total_batch_size=null --set train.min_lr_ratio=0.1 --set train.beta2=0.95
    --set train.num_samples=0 --set train.checkpoint_interval=0)
  make_tokens
  "$build/bin/train" "${all[@]}" --print-config >"$run"
  "${twin[@]}" init --run "$run" --out "$runs/initial"
  run_in_processes first "$build/bin/train" "${all[@]}" --init "$runs/initial"
  run_in_processes second "$build/bin/train" "${all[@]}" --init "$runs/initial"
  twin+=(train --run "$run" --init "$runs/initial" --device "$device")
  "${twin[@]}" --out "$work/$section/pytorch.jsonl"
  "${twin[@]}" --out "$work/$section/reversed.jsonl" --reversed
}

section_bf16() {
  local choices=()
  if [[ $device == cuda ]]; then choices=(--set "train.gemm_choices=$runs/gemm_choices.json"); fi
  compare --dtype bf16 "${choices[@]}"
}

section_tf32() { compare --dtype f32 --set train.gemm=library_tf32; }

section_f32() { compare --dtype f32; }

if [[ $# -eq 2 && $1 == --section ]]; then call_section "$2"; fi

check_commit "${1:-}" "bash tools/loss_curves.sh [--device cpu] COMMIT [SECTION...]"
commit=$1
shift
sections=("$@")
if [[ $# -eq 0 ]]; then sections=("${all_sections[@]}"); fi
check_sections "${sections[@]}"
build_programs train stories train_tokenizer tokenize
keep_runs_in_memory
for section in "${sections[@]}"; do
  run_section "$section"
  add_to_report "$section"
done
end_of_report
