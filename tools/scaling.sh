#!/usr/bin/env bash
# Measures how training in several processes scales on the GPUs of this machine, and checks that it
# computes what one GPU computes. Reports in docs/performance/scaling.json and, as tables,
# scaling.md, and brings the predictions of docs/scaling.md up to date.
#
#   bash tools/scaling.sh [--device cpu] COMMIT [SECTION...]
#
# COMMIT is what the report says was measured. It runs on 1, 2, 4, 8, ... GPUs, as many as there
# are; with --device cpu on 1, 2, 4 and 8 processes over Gloo with small models, which tries out
# every section and measures nothing that matters. Without sections all of them run, on two GPUs in
# about 300 s:
#
#   bandwidth  all-reduce, reduce-scatter and all-gather between the GPUs
#   gpt2       GPT-2 124M, 32 x 1024 tokens a GPU, bf16: speed, memory, the same bits twice; plain,
#              with the optimizer's state shared out, and plain with gradients that travel beside
#              backward, as they do over several hosts
#   qwen3      Qwen3-0.6B, 8 x 2048 tokens a GPU, bf16: the same
#   losses     20 steps of one global batch, on one GPU that accumulates and shared out
#   kill       a rank is killed, on 4 GPUs where there are so many
#   pytorch    DistributedDataParallel on the same models; by itself only where PYTHON has PyTorch
#
# Sections may run one by one: the report keeps what it has of the others, each with its commit.
# Variables:
# RANKS, the numbers of GPUs or processes ("1 2 4 8 16"); ROUNDS, how often a model's runs take
# turns (2); BUILD, the build folder (build-gpu, or build on CPUs); REPORT, the folder of the report
# (docs/performance, or scaling in the build folder on CPUs); PYTHON, one that has PyTorch
# (python3); CMAKE_ARGS, further arguments of cmake; RUNS, a folder for the files of runs (/dev/shm
# where it has room, since every run ends with a checkpoint).
# shellcheck disable=SC2317 # sections are called by name
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { echo "scaling: $*" >&2; exit 2; }
if [[ ${1:-} == --device ]]; then
  [[ $# -gt 1 ]] || refuse "--device must be followed by cuda or cpu"
  export DEVICE=$2
  shift 2
fi
name=scaling
reporter=tools/scaling_report.py
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
limit=480  # seconds a section may take
rounds=${ROUNDS:-2}

case $device in
  cuda)
    build=${BUILD:-build-gpu}
    report=${REPORT:-docs/performance}
    available=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
    [[ $available -gt 0 ]] || refuse "there must be a GPU; without one use --device cpu"
    steps=30
    gpt2=(--config configs/gpt2_124m.json --dtype bf16 --batch-size 32)
    qwen3=(--config configs/qwen3_0.6b.json --dtype bf16 --batch-size 8)
    losses=(--config configs/gpt2_124m.json --batch-size 4)
    losses_tokens=4096  # of a GPU in a micro-step
    dtypes="f32 bf16"
    dead=()
    peers=(--model gpt2 configs/gpt2_124m.json 32 --model qwen3 configs/qwen3_0.6b.json 8)
    mib=(0.0625 1 5 25 100 400)
    ;;
  cpu)
    build=${BUILD:-build}
    report=${REPORT:-$build/scaling}
    available=8
    steps=12
    qwen3=(--config configs/tiny.json --batch-size 2)
    gpt2=("${qwen3[@]}" --set model.model_type=gpt2)
    losses=(--config configs/tiny.json --batch-size 2 --seq-len 32)
    losses_tokens=64
    dtypes="f64 f32"
    dead=(--batch-size 2 --seq-len 16 --set train.eval_interval=0)
    peers=(--model qwen3 configs/tiny.json 2)
    mib=(0.0625 1)
    ;;
  *) refuse "--device must be cuda or cpu; got $device" ;;
esac

ranks=()
for count in ${RANKS:-1 2 4 8 16}; do
  if [[ $count -le $available ]]; then ranks+=("$count"); fi
done
[[ ${ranks[0]:-} == 1 ]] || refuse "RANKS must begin with 1, what the others are compared with"
most=${ranks[-1]}

source tools/sections.sh

# The tokens do not matter.
quiet=(--set data.source=stories --set train.num_samples=0 --set train.eval_interval=0)

section_bandwidth() {
  local count
  for count in "${ranks[@]}"; do
    if [[ $count -gt 1 ]]; then
      "$build/bin/bench_collectives" --device "$device" --nproc "$count" --mib "${mib[@]}" --json |
        tee "$work/bandwidth/$count.json"
    fi
  done
}

# speed ROUNDS ARGUMENT...: a model on every number of GPUs, in turns. GPUs of one host share the
# state out and let gradients travel behind backward unless told otherwise; CPUs do neither.
speed() {
  local round count all=("${@:2}" --max-steps "$steps" --set train.total_batch_size=null
    "${quiet[@]}")
  for ((round = 1; round <= $1; ++round)); do
    for count in "${ranks[@]}"; do
      run_in_processes "${count}_plain_$round" plain_on "$count" "${all[@]}"
      if [[ $count -gt 1 ]]; then
        run_in_processes "${count}_zero_$round" train_on "$count" --zero "${all[@]}"
        run_in_processes "${count}_beside_$round" plain_on "$count" --overlap "${all[@]}"
      fi
    done
  done
}

section_gpt2() { speed "$rounds" "${gpt2[@]}"; }
section_qwen3() { speed "$rounds" "${qwen3[@]}"; }

section_losses() {
  local dtype count all
  for dtype in $dtypes; do
    all=("${losses[@]}" --dtype "$dtype" --max-steps 20 "${quiet[@]}"
      --set train.total_batch_size=$((most * losses_tokens)))
    for count in "${ranks[@]}"; do
      run_in_processes "${dtype}_${count}_plain" plain_on "$count" "${all[@]}"
      if [[ $count -gt 1 ]]; then
        run_in_processes "${dtype}_${count}_zero" train_on "$count" --zero "${all[@]}"
      fi
    done
    run_in_processes "${dtype}_${most}_again" plain_on "$most" "${all[@]}"
  done
}

section_kill() {
  local count=$((most < 4 ? most : 4))
  echo "ranks: $count"
  kill_a_rank "$count" "${dead[@]}" || return  # which lets it go on after a command that fails
}

section_pytorch() {
  local count
  for count in "${ranks[@]}"; do
    "$python" -m torch.distributed.run --standalone --nproc-per-node "$count" \
      tools/bench_ddp_pytorch.py --device "$device" "${peers[@]}" \
      --steps "$((steps / 2))" --json "$work/pytorch/$count.json"
  done
}

if [[ $# -eq 2 && $1 == --section ]]; then call_section "$2"; fi

check_commit "${1:-}" "bash tools/scaling.sh [--device cpu] COMMIT [SECTION...]"
commit=$1
shift
sections=("$@")
if [[ $# -eq 0 ]]; then
  sections=(gpt2 qwen3)
  if [[ $most -gt 1 ]]; then sections=(bandwidth gpt2 qwen3 losses kill); fi
  if "$python" -c 'import torch' 2>/dev/null; then sections+=(pytorch); fi
fi
check_sections "${sections[@]}"
build_programs train train_ddp bench_collectives

keep_runs_in_memory
for section in "${sections[@]}"; do
  run_section "$section"
  add_to_report "$section"
done
if [[ $report == docs/performance ]]; then
  "$python" tools/scaling_model.py --write docs/scaling.md
fi
end_of_report
