#!/bin/sh
# In the forward kernels built on wgmma, exponentials are computed while a product is under way: in
# the machine code, between the wait that leaves one product running and the wait for that product.
# ptxas moves the second wait in front of them when it can (finish_exponentials prevents it).
#
#   overlap_test.sh CUOBJDUMP LIBRARY
set -e
"$1" -sass "$2" | awk '
  function judge() {
    if (waits == 0) return
    printf "%s: %d exponentials under a product, %d behind it\n", name, under, behind
    kernels++
    if (under < 30 || behind > under / 8) bad++
  }
  /Function :/ { judge(); name = ""; waits = under = behind = running = seen = 0
                 if ($3 ~ /flash_forward_wgmma/) name = $3 }
  name == "" { next }
  /WARPGROUP.DEPBAR.LE gsb0, 0x1/ { running = 1; waits++ }
  /WARPGROUP.DEPBAR.LE gsb0, 0x0/ { if (running) seen = 1; running = 0 }
  /MUFU.EX2/ { if (running) under++; else if (seen) behind++ }
  END { judge()
        if (kernels == 0) { print "no kernel waits with a product under way"; exit 1 }
        exit bad > 0 }'
