#pragma once
// What both kinds of attention check and derive before they compute.

#include "ops/attention/attention.h"

namespace xtrain {

struct AttentionSizes {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;

  // Query heads that share a key head.
  XT_HOST_DEVICE int64_t group() const { return heads / kv_heads; }
};

// Error unless everything fits together as attention.h says.
AttentionSizes check_attention(const Context& ctx, const Tensor& q, const Tensor& k,
                               const Tensor& v, const AttentionOptions& options);

double scale_of(const AttentionOptions& options, int64_t head_dim);

// The mask with contiguous tensors.
AttentionMask contiguous_mask(const Context& ctx, const AttentionMask& mask);

}  // namespace xtrain
