#pragma once
// Attention of one further token a row over a cache of keys and values, as when a model writes. It
// has no gradient.
//
//   packed [B, 1, (H + 2 KV) D]: the token's H query heads, its KV key heads and KV value heads
//   q and k are what qk_norm_rope makes of the first two at position start[b]
//   keys[b, start[b]] = k and values[b, start[b]] = v where added[b] is 1
//   o [B, 1, H D]: q's attention (attention.h) over the first end[b] keys of its row
//
// On a CPU the bits are those of the composed op. On a GPU that has clusters of blocks this is one
// kernel, which reads the cache while the kernels before it still run where the context's weights
// rest.

#include "ops/qk_norm_rope/qk_norm_rope.h"

namespace xtrain {

struct CachedTokens {
  Tensor keys, values;       // [B, capacity, KV, D], contiguous
  Tensor start, added, end;  // [B] i32: tokens held, 0 or 1 further one, and their sum
};

// Errors are those of qk_norm_rope, append_rows and attention; with a table, Error where the
// capacity exceeds its positions.
Tensor cached_attention(const Context& ctx, const Tensor& packed, const Tensor& q_weight,
                        const Tensor& k_weight, const QkNormRope& options, const RopeTable* table,
                        const CachedTokens& cache);

// The same from qk_norm_rope, append_rows and flash attention.
Tensor cached_attention_composed(const Context& ctx, const Tensor& packed, const Tensor& q_weight,
                                 const Tensor& k_weight, const QkNormRope& options,
                                 const RopeTable* table, const CachedTokens& cache);

}  // namespace xtrain
