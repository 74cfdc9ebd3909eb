#pragma once
// What attention needs of its packed input, as one node. qkv [B, T, (H + 2 KV) D]: per token the H
// query heads, the KV key heads, the KV value heads. Each query and key head is normalised,
// q_hat = rms_norm(q, q_weight) over its D elements (norm.h), and turned by its position's angles
// (rope.h). Values are copied. The output is packed like the input and contiguous.
//
// Gradients are those of rms_norm and rope; dq_weight and dk_weight [D] sum over the tokens and the
// heads. Kept for backward: table and positions and, when normalised, qkv, the weights and one
// number a head and token; x_hat is computed again. The gradient is rewritten in place when nobody
// else holds it.

#include "autodiff/tape.h"
#include "ops/rope/rope.h"

namespace xtrain {

struct QkNormRope {
  int64_t heads, kv_heads, head_dim;
  double eps = 1e-6;
  RopePairing pairing = RopePairing::halves;

  XT_HOST_DEVICE int64_t packed_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Not normalised when both weights are undefined; Error when one is. Not turned when table is null;
// positions are then not looked at. positions [B, T] i32. Error when head_dim is odd, a position
// lies outside the table, or a shape or dtype does not fit.
Var qk_norm_rope(const Context& ctx, const Var& qkv, const Var& q_weight, const Var& k_weight,
                 const QkNormRope& options, const RopeTable* table, const Tensor& positions);

// The same function of split, rms_norm, rope and concat.
Var qk_norm_rope_composed(const Context& ctx, const Var& qkv, const Var& q_weight,
                          const Var& k_weight, const QkNormRope& options, const RopeTable* table,
                          const Tensor& positions);

}  // namespace xtrain
