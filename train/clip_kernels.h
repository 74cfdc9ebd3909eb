#pragma once
// The kernels of clip.h.

#include <cmath>

#include "core/dispatch.h"
#include "train/clip.h"

namespace xtrain {

// *sum = the sum of n squares in a fixed order. A is float or double.
template <class A>
void sum_squares(const Cpu& cpu, int64_t n, const A* x, double* sum);
template <class A>
void sum_squares(const Cuda& cuda, int64_t n, const A* x, double* sum);

// scale[0..3] = the fields of the GradScale of *squares and *count. Count is int64_t or double.
template <class Count>
void compute_grad_scale(const Cpu& cpu, const double* squares, const Count* count, double max_norm,
                        double* scale);
template <class Count>
void compute_grad_scale(const Cuda& cuda, const double* squares, const Count* count,
                        double max_norm, double* scale);

// The formula, the same on every device.
XT_HOST_DEVICE inline GradScale scale_of_sum(double squares, double count, double max_norm) {
  GradScale scale;
  scale.finite = squares - squares == 0.0 ? 1.0 : 0.0;  // infinity less itself is NaN
  scale.count = count;
  if (count == 0.0) return scale;
  scale.norm = sqrt(squares) / count;
  scale.factor = 1.0 / count;
  if (max_norm > 0.0 && scale.norm > max_norm) scale.factor *= max_norm / scale.norm;
  return scale;
}

// A GradScale as it lies in memory.
XT_HOST_DEVICE inline void store_grad_scale(const GradScale& from, double* to) {
  to[0] = from.norm;
  to[1] = from.factor;
  to[2] = from.finite;
  to[3] = from.count;
}
XT_HOST_DEVICE inline GradScale load_grad_scale(const double* from) {
  return {from[0], from[1], from[2], from[3]};
}

}  // namespace xtrain
