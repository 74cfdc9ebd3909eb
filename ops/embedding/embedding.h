#pragma once
// Rows of a table, picked by ids.
//
//   y[..., c] = weight[ids[...], c]     weight [V, C] floating, ids [...] i32, y [..., C]
//   dweight[v, c] = the sum of dy[i, c] over the positions i with ids[i] = v, in their order
//
// Ids must lie in [0, V), else Error naming the id, its position in row-major order and V. dweight
// is computed in the accumulator's dtype (f32 for bf16). Kept for backward: ids.

#include "autodiff/tape.h"

namespace xtrain {

Var embedding(const Context& ctx, const Var& weight, const Tensor& ids);

}  // namespace xtrain
