#!/bin/sh
# Runs a compiler, named by the arguments, and fails where ptxas says that it made wgmma slow: when
# products are serialised (C7510 and its neighbours), a hand-over of registers is ignored (C7508) or
# registers are spilled. ptxas speaks of that only when asked to (-Xptxas -v). What it says of each
# kernel is kept beside the output, in OUTPUT.ptxas; ptxas_table.sh reads it.
#
# It stands in front of a compiler cache, if there is one: a cache repeats what the compiler said.
output=""
last=""
for argument in "$@"; do
  [ "$last" != -o ] || output=$argument
  last=$argument
done

said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
grep -vE '^$|^ptxas info|bytes stack frame' "$said" >&2
[ $status -eq 0 ] || exit $status
kernels=$(grep -E '^ptxas info|bytes stack frame' "$said")
[ -z "$kernels" ] || [ -z "$output" ] || echo "$kernels" >"$output.ptxas"

slow=$(grep -E '\(C75[0-9]+\)|bytes stack frame' "$said" |
  grep -vE ' 0 bytes spill stores, 0 bytes spill loads')
[ -n "$slow" ] || exit 0
echo "ptxas made slow code of a kernel that must not spill or wait:" >&2
echo "$slow" >&2
[ -z "$output" ] || rm -f "$output"  # what was built must not pass for done
exit 1
