#!/bin/sh
# What the kernels built on wgmma need, from what ptxas said when they were compiled: a table.
#
#   sh cmake/ptxas_table.sh BUILD
set -e
files=$(find "${1:?usage: sh cmake/ptxas_table.sh BUILD}" -name '*.ptxas' | sort)
[ -n "$files" ] || {
  echo "ptxas_table: $1 must hold what ptxas said (*.ptxas); build it with -DXTRAIN_CUDA=ON" >&2
  exit 2
}
echo '| kernel | registers a thread at launch | bytes on the stack | bytes spilled |'
echo '| --- | --- | --- | --- |'
# shellcheck disable=SC2086 # a name a word
cat $files | c++filt | awk '
  /Compiling entry function/ {
    name = $0
    sub(/^[^\047]*\047(void )?/, "", name)
    gsub(/xtrain::|flash_wgmma::|\(anonymous namespace\)::/, "", name)
    sub(/\(.*/, "", name)
  }
  /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
  /Used [0-9]+ registers/ { printf "| %s | %d | %d | %d |\n", name, $5, stack, spilled }'
