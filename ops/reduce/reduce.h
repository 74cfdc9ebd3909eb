#pragma once
// Sums over dimensions. x [any shape], f64, f32 or bf16; y has the dtype of x and its shape without
// the summed dimensions, or with size 1 there (keep_dims). dims may be negative, counted from the
// end; none means all.
//
//   sum:  y = sum x           dx = dy
//   mean: y = sum x / n       dx = dy / n,  n the number of elements summed
//
// dx is dy repeated by stride 0, not a copy. The sum over no elements is 0, the mean over none is
// NaN. The order of summation depends on the shape only: blocks of up to 64 additions in the
// accumulator type (f32 for bf16), their sums in f64, so that long f32 sums stay exact to a few
// units in the last place. Kept for backward: nothing.
// Error: a dimension out of range or named twice.

#include <vector>

#include "autodiff/tape.h"

namespace xtrain {

Var sum(const Context& ctx, const Var& x, const std::vector<int>& dims = {},
        bool keep_dims = false);
Var mean(const Context& ctx, const Var& x, const std::vector<int>& dims = {},
         bool keep_dims = false);

// factor times the sum of x over the dimensions along which `shape` would repeat to become x's
// shape: what a gradient goes through where a value was repeated. No gradient of its own.
Tensor sum_to_shape(const Context& ctx, const Tensor& x, const Shape& shape, Dtype dtype,
                    double factor = 1.0);

}  // namespace xtrain
