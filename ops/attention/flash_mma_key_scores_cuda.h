#pragma once
// From the scores of a warp's keys and some queries to probabilities and the gradients of scores.
// Matrices are [keys, queries]: lane 4g + t holds queries 2t and 2t + 1 of keys g and g + 8.

#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_backward_cuda.h"

#if defined(__CUDACC__)

namespace xtrain::flash_mma {

// s [keys, queries] becomes 2^(factor s - log2_sum).
template <int kRowTiles, int kColumnTiles>
__device__ void to_probabilities(MmaSums<kRowTiles, kColumnTiles>& s, const float* log2_sum,
                                 float factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const float2 sum = *reinterpret_cast<const float2*>(log2_sum + n * 8 + 2 * t);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = exp2_approximate(s[m][n][i] * factor - (i % 2 == 0 ? sum.x : sum.y));
      }
    }
  }
}

// p [keys, queries] becomes 0 where a query does not see a key.
template <int kRowTiles, int kColumnTiles>
__device__ void mask_probabilities(MmaSums<kRowTiles, kColumnTiles>& p, const KeyRange* ranges,
                                   int first_key) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const KeyRange range = ranges[n * 8 + 2 * t + e];
      const unsigned count = range.end - range.first, offset = first_key + g - range.first;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        if (offset + m * 16 >= count) p[m][n][e] = 0.0f;
        if (offset + m * 16 + 8 >= count) p[m][n][2 + e] = 0.0f;
      }
    }
  }
}

// Whether dropout keeps the sums of a lane: bit i is element i of a tile of 16 keys x 8 queries.
// Each lane draws for one query and four keys.
__device__ inline unsigned kept_of_columns(const AttentionDropout& dropout, int64_t batch,
                                           int64_t head, int64_t query, int64_t key) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Philox4 words = dropout.words(batch, head, query + lane % 8, key / 4 + lane / 8);
  unsigned drawn = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) drawn |= static_cast<unsigned>(dropout.keeps(words.word[i])) << i;
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int from = (g / 4 + i / 2 * 2) * 8 + 2 * t + i % 2;
    kept |= (__shfl_sync(kAllLanes, drawn, from) >> g % 4 & 1) << i;
  }
  return kept;
}

// dp [keys, queries] becomes ds = p (dp - delta).
template <int kRowTiles, int kColumnTiles>
__device__ void to_score_gradients(MmaSums<kRowTiles, kColumnTiles>& dp,
                                   const MmaSums<kRowTiles, kColumnTiles>& p, const float* delta) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const float2 d = *reinterpret_cast<const float2*>(delta + n * 8 + 2 * (threadIdx.x % 4));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - (i % 2 == 0 ? d.x : d.y));
      }
    }
  }
}

// The factors of dropout on p, which is packed with them into `left`, and on dp.
template <int kRowTiles, int kColumnTiles>
__device__ void drop_columns(const MmaSums<kRowTiles, kColumnTiles>& p,
                             MmaLeft<kRowTiles, kColumnTiles / 2>& left,
                             MmaSums<kRowTiles, kColumnTiles>& dp, const AttentionDropout& dropout,
                             int64_t batch, int64_t head, int64_t query, int64_t key) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const unsigned kept = kept_of_columns(dropout, batch, head, query + n * 8, key + m * 16);
      float dropped[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float factor = kept >> i & 1 ? static_cast<float>(dropout.kept) : 0.0f;
        dropped[i] = p[m][n][i] * factor;
        dp[m][n][i] *= factor;
      }
      left[m][n / 2][n % 2 * 2] = pack_bf16(dropped[0], dropped[1]);
      left[m][n / 2][n % 2 * 2 + 1] = pack_bf16(dropped[2], dropped[3]);
    }
  }
}

// p and its copy for the other warp of the pair, where a set sign says that p was dropped.
template <int kRowTiles, int kColumnTiles>
__device__ void drop(MmaSums<kRowTiles, kColumnTiles>& p,
                     MmaLeft<kRowTiles, kColumnTiles / 2>& signed_p,
                     const AttentionDropout& dropout, int64_t batch, int64_t head, int64_t query,
                     int64_t key) {
  const float factor = static_cast<float>(dropout.kept);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const unsigned kept = kept_of_columns(dropout, batch, head, query + n * 8, key + m * 16);
      float marked[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        marked[i] = kept >> i & 1 ? p[m][n][i] : -p[m][n][i];
        p[m][n][i] *= kept >> i & 1 ? factor : 0.0f;
      }
      signed_p[m][n / 2][n % 2 * 2] = pack_bf16(marked[0], marked[1]);
      signed_p[m][n / 2][n % 2 * 2 + 1] = pack_bf16(marked[2], marked[3]);
    }
  }
}

}  // namespace xtrain::flash_mma

#endif
