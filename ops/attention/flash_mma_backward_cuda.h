#pragma once
// What the two kernels of the backward pass on the tensor cores share. The query kernel runs first
// and leaves the terms that the key kernel reads.

#include <algorithm>
#include <cstdint>

#include "ops/attention/flash_mma_cuda.h"

namespace xtrain::flash_mma {

// What the key kernel needs to know of each query, padded to a multiple of kTileMultiple tiles of
// kQueryTile. A padded query sees nothing and has log2_sum +infinity, so its p is 0.
inline constexpr int kQueryTile = 64, kTileMultiple = 2;
struct QueryTerms {
  int tiles;         // of a sequence
  float* log2_sum;   // [B, H, tiles * kQueryTile]: log_sum in base 2
  float* delta;      // likewise: dy . o
  KeyRange* ranges;  // [B, tiles * kQueryTile]
  SeenKeys* seen;    // [B, tiles]
};

// Which tile of which head a block works on. Blocks start in the order of their numbers: of the
// heads that are taken together, those tiles come first that take longest under a causal mask, so
// that the last blocks to run are short and no multiprocessor waits long for another. What the
// heads taken together read should stay in the level 2 cache.
struct BlockOrder {
  unsigned heads, tiles, together;

  unsigned blocks() const { return heads * tiles; }

  struct Place {
    unsigned head, rank;  // rank 0: the tile that takes longest
  };
  __device__ Place place(unsigned block) const {
    const unsigned first = block / (together * tiles) * together, within = block - first * tiles;
    const unsigned count = min(together, heads - first);
    return Place{first + within % count, within / count};
  }
};

// For heads whose blocks read `head_bytes`, all blocks of a head the same.
inline BlockOrder block_order(int64_t heads, int64_t tiles, int64_t head_bytes) {
  constexpr int64_t kBytesTogether = int64_t{16} << 20;
  const int64_t rounds =
      std::clamp(heads * head_bytes / kBytesTogether, int64_t{1}, std::max<int64_t>(heads, 1));
  const int64_t together = std::max<int64_t>((heads + rounds - 1) / rounds, 1);
  return BlockOrder{static_cast<unsigned>(heads), static_cast<unsigned>(tiles),
                    static_cast<unsigned>(together)};
}

// flash_mma_query_gradients_cuda.cu: the terms, and dq where it is wanted.
void query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                     const QueryTerms& terms);
// flash_mma_key_gradients_cuda.cu: dk and dv where they are wanted.
void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms);

// Bytes of shared memory that a block needs; 0 for a head size without a kernel.
int64_t query_gradients_shared_bytes(int64_t head_dim);
int64_t key_gradients_shared_bytes(int64_t head_dim);

}  // namespace xtrain::flash_mma
