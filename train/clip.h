#pragma once
// The global norm of the gradients, and what the optimizer multiplies them by. All numbers stay on
// the device of the context, so that a step waits for nothing.

#include "core/tensor.h"

namespace xtrain {

// Sum of squares of a contiguous f32 or f64 tensor, [1] f64: 1e20 squared fits. The order of the
// sum is fixed. Infinite or NaN when an element is.
Tensor sum_of_squares(const Context& ctx, const Tensor& x);

// How a step scales its gradients. On the device it is a tensor [4] f64, these fields in order.
struct GradScale {
  double norm = 0.0;    // of the mean gradient, before clipping
  double factor = 0.0;  // turns the summed gradient into the mean one, clipped to the largest norm
  double finite = 1.0;  // 1, or 0: then the step must not be taken
  double count = 0.0;   // the losses that the gradient sums
};
inline constexpr int64_t kGradScaleFields = 4;

// From the summed gradient's sum of squares, [1] f64, and the number of losses it sums, [1] i64 or
// f64: a GradScale, [4] f64. 0 losses: norm and factor 0. max_norm 0 means no limit.
Tensor grad_scale(const Context& ctx, const Tensor& squares, const Tensor& count, double max_norm);

// What such a tensor says, once it has been downloaded: `host` lies in host memory.
GradScale read_grad_scale(const Tensor& host);

}  // namespace xtrain
