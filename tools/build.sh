#!/usr/bin/env bash
# Sets up and builds: tools/build.sh FOLDER TARGET [CMAKE-OPTION...], Release unless told otherwise.
# The folder is relative to the repository. The configure log is shown only when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
target=$2
shift 2

bash tools/setup.sh
if command -v ninja >/dev/null; then export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}; fi

mkdir -p "$folder"
log=$folder/configure.log
if ! cmake -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release "$@" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build: cmake could not configure $folder; its messages are above" >&2
  exit 1
fi
cmake --build "$folder" --target "$target" --parallel "$(nproc)"
