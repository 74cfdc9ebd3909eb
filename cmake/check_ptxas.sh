#!/bin/sh
# Runs a compiler, named by the arguments, and fails where ptxas says that it made wgmma slow: when
# products are serialised (C7510 and its neighbours), a hand-over of registers is ignored (C7508) or
# registers are spilled. ptxas speaks of that only when asked to (-Xptxas -v).
#
# It stands in front of a compiler cache, if there is one: a cache repeats what the compiler said.
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
grep -vE '^$|^ptxas info|bytes stack frame' "$said" >&2
[ $status -eq 0 ] || exit $status

slow=$(grep -E '\(C75[0-9]+\)|bytes stack frame' "$said" |
  grep -vE ' 0 bytes spill stores, 0 bytes spill loads')
[ -n "$slow" ] || exit 0
echo "ptxas made slow code of a kernel that must not spill or wait:" >&2
echo "$slow" >&2
# What was built must not pass for done.
output=
for argument in "$@"; do
  [ "$output" != -o ] || rm -f "$argument"
  output=$argument
done
exit 1
