#!/usr/bin/env bash
# From a text to a model that other engines load, and back:
#
#   closed_loop.sh [TEXT]
#
# learns a tokenizer from TEXT (from built-in stories when none is given), tokenizes it, trains a
# small model on it, exports that in Hugging Face's layout, imports the export again, and generates
# and evaluates with all of them. Exit code 0 means that they agree to the last bit.
#
# XTRAIN_BIN        folder of the programs; without it they are built beside this script
# XTRAIN_LOOP_OUT   folder for all that is written: an empty one, or one of an earlier loop, which is
#                   written anew (a fresh temporary one)
# XTRAIN_LOOP_STEPS optimizer steps (300)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -z ${XTRAIN_BIN:-} ]]; then
  bash "$root/tools/build.sh" build all
  XTRAIN_BIN=$root/build/bin
fi
bin=$(cd "$XTRAIN_BIN" && pwd)
text=${1:+$(realpath -- "$1")}
steps=${XTRAIN_LOOP_STEPS:-300}
out=${XTRAIN_LOOP_OUT:-$(mktemp -d)}
mkdir -p "$out"
cd "$out"

fail() {
  echo "closed_loop: $*" >&2
  exit 1
}
# Says what runs, and runs it with the programs of this tree.
run() {
  echo "+ $*" >&2
  "$bin/$1" "${@:2}"
}
same() {  # same WHAT FILE FILE
  cmp -s -- "$2" "$3" || fail "$1: $2 and $3 must be equal; they differ"
  echo "same: $1"
}
# One hash over the names and contents of a folder.
hash_of() { (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16); }

# What is here is removed only where an earlier loop has written it.
[[ -e .closed_loop || -z $(ls -A) ]] || fail "$out must be empty; it holds other files"
touch .closed_loop
rm -rf tokens run exported exported_again imported exported_from_import
if [[ -z $text ]]; then
  run stories --count 4000 --separator '<|endoftext|>' >text.txt
else
  cp -- "$text" text.txt
fi
# The last tenth of the lines is for validation.
lines=$(wc -l <text.txt)
[[ $lines -ge 20 ]] || fail "the text must have at least 20 lines; $text has $lines"
head -n $((lines - lines / 10)) text.txt >train.txt
tail -n $((lines / 10)) text.txt >val.txt

echo "--- a tokenizer, and the text in tokens"
run train_tokenizer train.txt --vocab-size 1024 --split-on '<|endoftext|>' --out tokenizer.json
run tokenize train.txt --val val.txt --tokenizer tokenizer.json --split-on '<|endoftext|>' \
  --out-dir tokens

echo "--- a model"
run train --config "$root/configs/tiny.json" --flash --out-dir run \
  --data tokens/tokens_train_000000.bin --set 'data.val_files=["tokens/tokens_val_000000.bin"]' \
  --set model.vocab_size=1024 --max-steps "$steps" --set train.batch_size=8 \
  --set train.eval_steps=0 --set "train.eval_interval=$steps" --set train.num_samples=0

echo "--- out to Hugging Face's layout, and in again"
run convert export run exported
run convert export run exported_again
[[ $(hash_of exported) == "$(hash_of exported_again)" ]] || fail "a second export must be the same"
echo "same: two exports, $(hash_of exported)"
run convert import exported imported
run convert export imported exported_from_import
same "weights after export, import and export" \
  exported/model.safetensors exported_from_import/model.safetensors
run convert inspect exported | head -n 12

echo "--- text from each"
# What is exported knows the token that ends a text, the run does not.
prompts=(--prompt "Once upon a time" --prompt "The king" --prompt "He" --ignore-eos)
for model in run exported imported; do
  run generate --model "$model" "${prompts[@]}" --max-new-tokens 60 --temperature 0 \
    >"greedy_$model.txt"
  run generate --model "$model" "${prompts[@]}" --max-new-tokens 60 --temperature 0.8 --seed 7 \
    --top-k 50 --top-p 0.95 >"sampled_$model.txt"
done
run generate --model exported "${prompts[@]}" --max-new-tokens 60 --temperature 0 --no-cache \
  >greedy_no_cache.txt
run generate --model exported "${prompts[@]}" --max-new-tokens 60 --temperature 0 --stream-layers \
  >greedy_streamed.txt
for other in greedy_exported greedy_imported greedy_no_cache greedy_streamed; do
  same "likeliest text of the run and $other" greedy_run.txt "$other.txt"
done
for other in sampled_exported sampled_imported; do
  same "drawn text of the run and $other" sampled_run.txt "$other.txt"
done
cat sampled_run.txt

echo "--- the loss of each"
for model in run exported imported; do
  run evaluate --model "$model" --data tokens/tokens_val_000000.bin --flash --json \
    >"evaluated_$model.json"
done
run evaluate --model exported --data tokens/tokens_val_000000.bin --flash
for other in exported imported; do
  same "loss of the run and what was $other" <(grep -o '"loss":[^,]*' evaluated_run.json) \
    <(grep -o '"loss":[^,]*' "evaluated_$other.json")
done
echo "closed_loop: all agree; everything is in $out"
