#pragma once
// A sum that is cut off at 0, as one node: the smallest example of fusion (docs/fusion.md).
//
//   a, b of one shape    y = max(a + b, 0)    da = db = dy where y > 0, else 0
//
// Kept for backward: y. Both operands are handed the one tensor of the gradient.
// Error: shapes, dtypes or devices that differ.

#include "autodiff/tape.h"

namespace xtrain {

Var add_relu(const Context& ctx, const Var& a, const Var& b);

// The same from add and relu: two nodes, two kernels each way.
Var add_relu_composed(const Context& ctx, const Var& a, const Var& b);

}  // namespace xtrain
