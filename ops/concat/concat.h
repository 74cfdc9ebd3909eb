#pragma once
// Tensors joined along a dimension: y holds the parts one after the other.
//
//   parts [..., n_i, ...] -> y [..., sum of n_i, ...]      d(part i) = its slice of dy
//
// The gradients are views of dy, not copies. Kept for backward: nothing.
// Error: no part, dtypes or devices that differ, sizes that differ in another dimension.

#include <vector>

#include "autodiff/tape.h"

namespace xtrain {

Var concat(const Context& ctx, const std::vector<Var>& parts, int dim);

}  // namespace xtrain
