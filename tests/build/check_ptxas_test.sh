#!/bin/sh
# check_ptxas.sh lets good code pass, stops what is slow, and hides neither warnings nor errors.
check=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS LINE: a compiler that says LINE, writes its output and ends with $ends.
ends=0
expect() {
  said=$("$check" sh -c 'echo "$0" >&2; echo object >"$3"; exit $1' "$2" "$ends" -o "$folder/x.o" 2>&1)
  status=$?
  if [ "$status" -ne "$1" ]; then
    echo "status $status, not $1, for: $2"
    failures=$((failures + 1))
  fi
}
gone() { [ ! -e "$folder/x.o" ]; }

expect 0 'ptxas info    : Used 168 registers, used 16 barriers'
[ -z "$said" ] || { echo "not silent about good code: $said"; failures=$((failures + 1)); }
gone && { echo "output of good code is gone"; failures=$((failures + 1)); }
expect 0 '    280 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'
expect 1 '    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads'
gone || { echo "output of spilling code is there"; failures=$((failures + 1)); }
expect 1 'ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized'
expect 1 'ptxas info    : (C7508) setmaxnreg ignored to maintain minimum requirements.'
expect 0 'x.cu(3): warning: a variable is not used'
[ -n "$said" ] || { echo "a warning is lost"; failures=$((failures + 1)); }
ends=2
expect 2 'x.cu(3): error: no such thing'
[ -n "$said" ] || { echo "an error is lost"; failures=$((failures + 1)); }
[ $failures -eq 0 ]
