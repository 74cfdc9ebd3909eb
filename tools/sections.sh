# What the scripts share that check and measure in sections: the build, the sections, runs in
# several processes. They source this file from the root of the repository, having set
#
#   name      of the script, tools/NAME.sh, and its report
#   reporter  the Python program that makes the report
#   device    cuda or cpu
#   build     the build folder
#   report    the folder of the report
#   python    the Python that writes it
#   limit     seconds a section may take
#
# and define the function section_X for each section X. Before they read their arguments they say
#
#   if [[ $# -eq 2 && $1 == --section ]]; then call_section "$2"; fi
#
# shellcheck shell=bash disable=SC2154 # what the scripts set
work=$build/$name
failed=0

if [[ -d /usr/local/cuda/bin ]]; then export PATH=$PATH:/usr/local/cuda/bin; fi

# --- runs in several processes

# train_on N ARGUMENT...: one process, or N of them.
train_on() {
  local ranks=$1
  shift
  if [[ $ranks -eq 1 ]]; then
    "$build/bin/train" --device "$device" "$@"
  else
    "$build/bin/train_ddp" --device "$device" --nproc "$ranks" "$@"
  fi
}

# plain_on N ARGUMENT...: the same, with the optimizer's state whole on each.
plain_on() {
  local ranks=$1 whole=()
  shift
  if [[ $ranks -gt 1 ]]; then whole=(--no-zero); fi
  train_on "$ranks" "${whole[@]}" "$@"
}

# Every run ends with a checkpoint. The runs of a GPU's models go where that costs no time, unless
# RUNS says where: 32 GiB hold those of several.
keep_runs_in_memory() {
  if [[ -z ${RUNS:-} && $device == cuda && $(df --output=avail /dev/shm | tail -n 1) -gt 33554432 ]]
  then
    export RUNS=/dev/shm
  fi
}

fresh_folder() { mktemp -d "$runs/run.XXXXXX"; }

# run_in_processes NAME COMMAND...: a fresh run that leaves NAME.jsonl, the metrics of its steps.
run_in_processes() {
  local run=$1 folder status=0
  shift
  folder=$(fresh_folder)
  echo "run $run: $*"
  "$@" --out-dir "$folder" || status=$?
  if [[ $status -eq 0 ]]; then
    cp "$folder/metrics.jsonl" "$work/$section/$run.jsonl"
  else
    echo "run $run failed with exit code $status"
  fi
  rm -rf "$folder"
  return "$status"
}

# wait_for_text TEXT FILE PID: until the file holds the text or the process has ended.
wait_for_text() {
  until grep -qs "$1" "$2"; do
    kill -0 "$3" 2>/dev/null || return 1
    sleep 0.05
  done
}

# kill_a_rank N ARGUMENT...: a rank of N is killed: the others must name it, and the run go on from
# its checkpoint to the weights of an unbroken one.
kill_a_rank() {
  local ranks=$1 folder launcher pids start tiny code=0
  shift
  folder=$(fresh_folder)
  tiny=(--config configs/tiny.json --max-steps 600 --timeout 10
    --set train.checkpoint_interval=50 --set train.num_samples=0 "$@")
  echo "unbroken $(train_on "$ranks" "${tiny[@]}" --out-dir "$folder/unbroken" | grep '^weights ')"
  "$build/bin/train_ddp" --device "$device" --nproc "$ranks" "${tiny[@]}" --max-restarts 1 \
    --out-dir "$folder/broken" >"$folder/out" 2>"$folder/err" &
  launcher=$!
  wait_for_text '"step":120,' "$folder/broken/metrics.jsonl" "$launcher"
  read -r -a pids <"/proc/$launcher/task/$launcher/children" || true  # a line without an end
  start=${EPOCHREALTIME/./}  # in microseconds
  kill -KILL "${pids[1]}"
  wait_for_text 'starting all ranks again' "$folder/err" "$launcher"
  echo "all ranks gone after $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
  wait "$launcher" || code=$?
  echo "restarted run ended with exit code $code"
  grep 'rank . was' "$folder/err"
  echo "broken $(grep '^weights ' "$folder/out")"
  # The pattern is not found in the arguments of grep itself.
  echo "processes left: $(grep -las "$folder/[b]roken" /proc/[0-9]*/cmdline | wc -l)"
  rm -rf "$folder"
}

# --- the build

# build_programs TARGET...: one build at a time, since other sections and scripts may be under way
# on another GPU.
build_programs() {
  mkdir -p "$work" "$report"
  (flock 9 && build_alone "$@") 9>"$build/build.lock"
}

build_alone() {
  local options=(-DCMAKE_BUILD_TYPE=Release) target targets=()
  if [[ $device == cuda ]]; then options+=(-DXTRAIN_CUDA=ON); fi
  if command -v ninja >/dev/null && [[ ! -f $build/CMakeCache.txt ]]; then options+=(-G Ninja); fi
  for target in "$@"; do targets+=(--target "$target"); done
  # shellcheck disable=SC2086 # CMAKE_ARGS are several words
  cmake -S . -B "$build" "${options[@]}" ${CMAKE_ARGS:-} >"$work/configure.log" ||
    { cat "$work/configure.log" >&2; return 1; }
  cmake --build "$build" --parallel "$(nproc)" "${targets[@]}" >"$work/build.log" ||
    { grep -E 'error|FAILED' "$work/build.log" >&2; return 1; }
}

# --- the sections

# Ends this process with the section's exit code.
call_section() {
  check_sections "$1"
  section=$1
  rm -rf "${work:?}/$section"
  mkdir -p "$work/$section"
  runs=$(mktemp -d "${RUNS:-$work/$section}/runs.XXXXXX")
  trap 'rm -rf "$runs"' EXIT
  "section_$section"
  exit
}

# check_commit WORD USAGE
check_commit() {
  [[ $1 =~ ^[[:alnum:]][[:alnum:]._/-]*$ ]] || { echo "$name: usage: $2" >&2; exit 2; }
}

check_sections() {
  local asked
  for asked in "$@"; do
    declare -F "section_$asked" >/dev/null ||
      { echo "$name: no section is called $asked" >&2; exit 2; }
  done
}

# Leaves the section's exit status and duration in the folder of its output.
run_section() {
  local start=$SECONDS status=0
  rm -f "$work/$1.json"
  timeout "$limit" bash "tools/$name.sh" --section "$1" >"$work/$1.log" 2>&1 || status=$?
  echo "$status $((SECONDS - start))" >"$work/$1.done"
}

add_to_report() {
  local status seconds
  read -r status seconds <"$work/$1.done"
  "$python" "$reporter" add "$report" --section "$1" --work "$work" \
    --build "$build" --device "$device" --commit "$commit" --status "$status" \
    --seconds "$seconds" || failed=1
}

end_of_report() {
  "$python" "$reporter" table "$report"
  exit "$failed"
}
