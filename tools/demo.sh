#!/usr/bin/env bash
# Installs what is missing, builds, and trains the small transformer of configs/tiny.json on the
# built-in stories; it ends by writing some of its own. Arguments go to train, after these.
set -euo pipefail
cd "$(dirname "$0")/.."

bash tools/build.sh build train

arguments=(--config configs/tiny.json --flash)
# Each demo gets a folder of its own, unless one is named.
if [[ " $* " != *" --out-dir"[\ =]* ]]; then
  arguments+=(--out-dir "runs/demo-$(date +%Y%m%d-%H%M%S)")
fi
echo "+ build/bin/train ${arguments[*]} $*"
exec build/bin/train "${arguments[@]}" "$@"
