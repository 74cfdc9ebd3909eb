#pragma once
// The global norm of the gradients, and what the optimizer multiplies them by.

#include "core/tensor.h"

namespace xtrain {

// Sum of squares of a contiguous f32 or f64 tensor, in f64: 1e20 squared fits, and any number of
// threads gives the same bits. Infinite or NaN when an element is.
double sum_of_squares(const Context& ctx, const Tensor& x);

struct GradScale {
  double norm = 0.0;    // of the mean gradient, before clipping
  double factor = 0.0;  // turns the summed gradient into the mean one, clipped to the largest norm
  bool finite = true;   // when false the step must not be taken
};

// From the summed gradient's sum of squares and the number of losses it sums. 0 losses: factor 0.
// max_norm 0 means no limit.
GradScale grad_scale(double squares, double count, double max_norm);

}  // namespace xtrain
