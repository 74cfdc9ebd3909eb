#pragma once
// What the two kernels of the backward pass on the tensor cores share. The query kernel runs first
// and leaves the terms that the key kernel reads.

#include <cstdint>

#include "ops/attention/flash_block_order.h"
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

// What the heads whose blocks begin together read (flash_block_order.h).
inline constexpr int64_t kBytesTogether = int64_t{16} << 20;

// flash_mma_query_gradients_cuda.cu: the terms, and dq where it is wanted.
void query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                     const QueryTerms& terms);
// flash_mma_key_gradients_cuda.cu: dk and dv where they are wanted.
void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms);

// Bytes of shared memory that a block needs; 0 for a head size without a kernel.
int64_t query_gradients_shared_bytes(int64_t head_dim);
int64_t key_gradients_shared_bytes(int64_t head_dim);

}  // namespace xtrain::flash_mma
