#pragma once
// The affine map of the last dimension.
//
//   y[..., o] = sum over i of x[..., i] weight[o, i] + bias[o]
//   x [..., in], weight [out, in], bias [out] or undefined, y [..., out], of one floating dtype
//
//   dx = dy weight      dweight = dy^T x      dbias = sum of dy over all but the last dimension
//
// y is biased (Var::biased): dbias comes from the column sums that its gradient brings, if it does.
// The gradients of weight and bias are computed in the accumulator's dtype (f32 for bf16). Rows of
// x that lie evenly apart, as in a slice of the last dimension, are read where they are. Kept for
// backward: x and weight.

#include "autodiff/tape.h"

namespace xtrain {

Var linear(const Context& ctx, const Var& x, const Var& weight, const Var& bias);

}  // namespace xtrain
