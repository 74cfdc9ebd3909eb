#pragma once
// Matrix product of the last two dimensions.
//
//   y = a b          a [..., M, K], b [..., K, N], y [..., M, N], of one floating dtype
//   da = dy b^T      db = a^T dy
//
// Leading sizes of 1, or missing ones, repeat; the gradient of a repeated operand is the sum over
// its repeats, in their order. Transposes and other views of the operands are read through their
// strides. Kept for backward: a and b.

#include "autodiff/tape.h"

namespace xtrain {

Var matmul(const Context& ctx, const Var& a, const Var& b);

}  // namespace xtrain
