#pragma once
// The softmax of the wgmma kernels of flash attention, on scores in the registers of a warpgroup: a
// thread holds columns 8j + 2t and 8j + 2t + 1 of two rows, 8 apart (core/cuda/hopper/wgmma.h).

#include "core/cuda/hopper/wgmma.h"
#include "ops/attention/flash_mma_cuda.h"

#if defined(__CUDACC__)

#include "core/cuda/exponential.h"

namespace xtrain::flash_wgmma {

using flash_mma::kShiftSlack;
using flash_mma::row_maximum;

// The softmax so far of the two rows of a thread.
struct RunningSoftmax {
  float shift[2] = {-INFINITY, -INFINITY};  // -infinity: nothing seen yet
  float sum[2] = {0.0f, 0.0f};  // of 2^(factor score - shift), over the thread's columns
};

// Takes a tile of scores into the softmax and turns them into 2^(factor s - shift). The shift
// follows the largest score only when that has run ahead of it by kShiftSlack. Returns whether it
// did in some row of the warp; what was summed before is then to be multiplied by `rescale`.
template <int kColumns>
__device__ __forceinline__ bool advance_softmax(RunningSoftmax& softmax, WgmmaSums<kColumns>& s,
                                                float factor, float (&rescale)[2]) {
  float largest[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    largest[h] = -INFINITY;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      largest[h] = fmaxf(largest[h], fmaxf(s.value[4 * j + 2 * h], s.value[4 * j + 2 * h + 1]));
    }
    largest[h] *= factor;
  }
  const bool moves =
      __any_sync(flash_mma::kAllLanes, largest[0] - softmax.shift[0] > kShiftSlack ||
                                           largest[1] - softmax.shift[1] > kShiftSlack);
  if (moves) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Each row for itself: what a query computes must not depend on its neighbours.
      const float row_largest = row_maximum(largest[h]);
      const bool row_moves = row_largest - softmax.shift[h] > kShiftSlack;
      rescale[h] = row_moves ? exp2_approximate(softmax.shift[h] - row_largest) : 1.0f;
      if (row_moves) softmax.shift[h] = row_largest;
      softmax.sum[h] *= rescale[h];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // A query that has seen nothing yet has no finite score to subtract.
    const float shift = softmax.shift[h] == -INFINITY ? 0.0f : softmax.shift[h];
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s.value[4 * j + 2 * h + e];
        x = exp2_approximate(fmaf(x, factor, -shift));
        softmax.sum[h] += x;
      }
    }
  }
  return moves;
}

// Scores in columns before `first`, or from `end` on, of the thread's rows become -infinity;
// columns are counted from the thread's first one.
template <int kColumns>
__device__ __forceinline__ void hide_before(WgmmaSums<kColumns>& s, const int (&first)[2]) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s.value[i] = -INFINITY;
  }
}
template <int kColumns>
__device__ __forceinline__ void hide_from(WgmmaSums<kColumns>& s, const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s.value[i] = -INFINITY;
  }
}

template <int kColumns>
__device__ __forceinline__ void scale_rows(WgmmaSums<kColumns>& o, const float (&factors)[2]) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) o.value[i] *= factors[i / 2 % 2];
}

// A store that would happen if a sum of exponentials were negative: it makes ptxas finish the
// exponentials before what follows. Without it, it moves the wait for the product under way in
// front of them, and the tensor cores stand still meanwhile.
__device__ __forceinline__ void finish_exponentials(const RunningSoftmax& softmax,
                                                    uint32_t shared) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.lt.f32 p, %1, 0f00000000;\n@p st.shared.f32 [%0], %1;\n}" ::"r"(
          shared),
      "f"(softmax.sum[0] + softmax.sum[1])
      : "memory");
}

}  // namespace xtrain::flash_wgmma

#endif
