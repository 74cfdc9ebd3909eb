#pragma once
// What the kernels of the backward pass by wgmma share.

#include <cstdint>

#include "core/cuda/hopper/wgmma.h"
#include "ops/attention/flash_wgmma_cuda.h"

#if defined(__CUDACC__)

#include "core/cuda/exponential.h"

namespace xtrain::flash_wgmma {

// What the gradient kernels need to know of each query. Sequences are padded to a multiple of
// kQueryPadding, so that the terms of a tile of any size are copied whole. A query of the padding
// sees nothing and has log2_sum +infinity, so its p is 0.
inline constexpr int kQueryPadding = 384, kSeenQueries = 16;
struct QueryTerms {
  int padded;        // queries of a sequence
  float* log2_sum;   // [B, H, padded]: log_sum in base 2
  float* delta;      // [B, H, padded]: dy . o
  KeyRange* ranges;  // [B, padded]
  SeenKeys* seen;    // [B, padded / kSeenQueries]: of so many queries together
};

// flash_wgmma_query_gradients_cuda.cu
void query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                     const QueryTerms& terms);
// flash_wgmma_key_shares_cuda.cu: dk and dv where they are wanted.
void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms);
// flash_wgmma_key_gradients_cuda.cu: the same over shares of the query heads that have a key head;
// dk and dv have a head for each share, those of one key head side by side.
void key_sums(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms,
              int shares);

// threadIdx.x, read where it is used: what is derived from threadIdx.x itself the compiler would
// keep in registers throughout a loop that has none to spare.
__device__ __forceinline__ int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// p = 2^(factor s - log2_sum) of an element.
__device__ __forceinline__ float probability(float s, float factor, float log2_sum) {
  return exp2_approximate(fmaf(s, factor, -log2_sum));
}

// A store that would happen if one of these exponentials were negative: it makes ptxas finish them
// before what follows. Without it, it moves the wait for the product under way in front of them,
// and the tensor cores stand still meanwhile.
template <int kColumns>
__device__ __forceinline__ void finish_exponentials(const WgmmaSums<kColumns>& p, uint32_t shared) {
  int signs = 0;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) signs |= __float_as_int(p.value[i]);
  asm volatile(
      "{\n.reg .pred p;\nsetp.lt.s32 p, %1, 0;\n@p st.shared.s32 [%0], %1;\n}" ::"r"(shared),
      "r"(signs)
      : "memory");
}

// gradient rows = (+=) scale * sums of a warp: 16 of the `rows` of one head, from `row` on, and
// kColumns columns from `column` on.
template <int kColumns>
__device__ __forceinline__ void store_gradient(FlashGradient gradient, int64_t batch, int64_t head,
                                               int64_t row, int64_t rows, int column, float scale,
                                               const WgmmaSums<kColumns>& sums) {
  const int lane = thread_again() % 32, t = lane % 4;
  const int64_t start = batch * gradient.batch + head * gradient.head + column * gradient.dim;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t r = row + h * 8 + lane / 4;
    const int64_t at = start + r * gradient.time;
    if (flash_mma::stores_words(gradient)) {
      // The words of four neighbouring tiles become 16 bytes of one of them in each lane.
      BFloat16* to = static_cast<BFloat16*>(gradient.data) + at + t * 8;
#pragma unroll
      for (int n = 0; n < kColumns / 8; n += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &sums.value[4 * (n + i) + 2 * h];
          x[i] = pack_bf16(scale * pair[0], scale * pair[1]);
        }
        flash_mma::transpose_words(x);
        if (r < rows) *reinterpret_cast<uint4*>(to + n * 8) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    } else if (r < rows) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const float* pair = &sums.value[4 * n + 2 * h];
        flash_mma::store_pair(gradient, at + (n * 8 + 2 * t) * gradient.dim, scale * pair[0],
                              scale * pair[1]);
      }
    }
  }
}

}  // namespace xtrain::flash_wgmma

#endif
