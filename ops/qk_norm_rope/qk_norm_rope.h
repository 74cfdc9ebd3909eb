#pragma once
// What attention needs of its queries and keys, as one node. qk [B, T, (H + KV) D]: per token the H
// query heads, then the KV key heads; mostly a slice of a packed projection, whose values attention
// reads where they are. Each head is normalised, q_hat = rms_norm(q, q_weight) over its D elements
// (norm.h), and turned by its position's angles (rope.h). The output is packed like the input and
// contiguous. qk is not copied when each token's elements are contiguous and the tokens evenly
// spaced.
//
// Gradients are those of rms_norm and rope; dq_weight and dk_weight [D] sum over the tokens and the
// heads. dqk is written into its place in the projection's gradient. Kept for backward: table and
// positions and, when normalised, qk, the weights and one number a head and token; x_hat is
// computed again.

#include "autodiff/tape.h"
#include "ops/rope/rope.h"

namespace xtrain {

struct QkNormRope {
  int64_t heads, kv_heads, head_dim;
  double eps = 1e-6;
  RopePairing pairing = RopePairing::halves;

  XT_HOST_DEVICE int64_t width() const { return (heads + kv_heads) * head_dim; }
};

// Not normalised when both weights are undefined; Error when one is. Not turned when table is null;
// positions are then not looked at. positions [B, T] i32. Error when head_dim is odd, a position
// lies outside the table, or a shape or dtype does not fit.
Var qk_norm_rope(const Context& ctx, const Var& qk, const Var& q_weight, const Var& k_weight,
                 const QkNormRope& options, const RopeTable* table, const Tensor& positions);

// The same function of split, rms_norm, rope and concat.
Var qk_norm_rope_composed(const Context& ctx, const Var& qk, const Var& q_weight,
                          const Var& k_weight, const QkNormRope& options, const RopeTable* table,
                          const Tensor& positions);

}  // namespace xtrain
