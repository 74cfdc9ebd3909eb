#!/bin/sh
# check_ptxas.sh lets good code pass, stops what is slow, hides neither warnings nor errors, and keeps
# what ptxas said; ptxas_table.sh makes a table of that.
#
#   check_ptxas_test.sh CHECK_PTXAS PTXAS_TABLE
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
grep -q 'Used 168 registers' "$folder/x.o.ptxas" ||
  { echo "what ptxas said is not kept"; failures=$((failures + 1)); }
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

table=$2
cat >"$folder/x.o.ptxas" <<'END'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN6xtrain12_GLOBAL__N_113flash_forwardINS0_6TilingILi64ELb1EEEEEvi' for 'sm_90a'
ptxas info    : Function properties for _ZN6xtrain12_GLOBAL__N_113flash_forwardINS0_6TilingILi64ELb1EEEEEvi
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
END
sh "$table" "$folder" | grep -qx '| flash_forward<Tiling<64, true> > | 168 | 16 | 12 |' ||
  { echo "the table reads:"; sh "$table" "$folder"; failures=$((failures + 1)); }
rm "$folder/x.o.ptxas"
sh "$table" "$folder" 2>/dev/null
[ $? -eq 2 ] || { echo "a folder without kernels is not refused"; failures=$((failures + 1)); }
[ $failures -eq 0 ]
