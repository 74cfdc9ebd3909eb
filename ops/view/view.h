#pragma once
// Rearrangements and regions of a tensor's elements. No element is copied (compact does so, and
// reshape when the strides leave no other way) and no gradient either: backward writes a view's
// gradient straight into its place in the gradient of x. What no view of x uses has gradient 0.

#include <vector>

#include "autodiff/tape.h"

namespace xtrain {

// The same elements in row-major order under another shape with as many elements.
Var reshape(const Context& ctx, const Var& x, const Shape& shape);

// Dimension i of the result is dimension order[i] of x.
Var permute(const Context& ctx, const Var& x, const std::vector<int>& order);

// Two dimensions swapped.
Var transpose(const Context& ctx, const Var& x, int dim0, int dim1);

// Elements [start, start + length) of a dimension.
Var slice(const Context& ctx, const Var& x, int dim, int64_t start, int64_t length);

// Consecutive slices whose lengths add up to the dimension's size.
std::vector<Var> split(const Context& ctx, const Var& x, int dim,
                       const std::vector<int64_t>& lengths);

// x with its elements side by side: in memory of its own where those of x are not, so that a node
// that keeps such a slice does not keep the whole.
Var compact(const Context& ctx, const Var& x);

// [B, T, H * D] as [B, T, H, D], and back.
Var split_heads(const Context& ctx, const Var& x, int64_t heads);
Var merge_heads(const Context& ctx, const Var& x);

}  // namespace xtrain
