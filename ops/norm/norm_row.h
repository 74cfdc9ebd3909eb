#pragma once
// Statistics of one contiguous row on the CPU, for the kernels that normalise rows.

#include <cmath>

#include "core/dtype.h"

namespace xtrain {

// 1 / sqrt(mean(x^2) + eps).
template <class T>
Accumulator<T> rms_rstd(const T* x, int64_t width, double eps) {
  using A = Accumulator<T>;
  A squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < width; ++i) {
    const A value = static_cast<A>(x[i]);
    squares += value * value;
  }
  return A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
}

// The mean is summed as differences to the first element: these are small where the spread is, and
// 0 in a constant row, whose variance is then exactly 0.
template <class T>
Accumulator<T> row_mean(const T* x, int64_t width) {
  using A = Accumulator<T>;
  const A first = static_cast<A>(x[0]);
  A differences = 0;
#pragma omp simd reduction(+ : differences)
  for (int64_t i = 0; i < width; ++i) differences += static_cast<A>(x[i]) - first;
  return first + differences / static_cast<A>(width);
}

// 1 / sqrt(mean((x - mean)^2) + eps).
template <class T>
Accumulator<T> centered_rstd(const T* x, int64_t width, Accumulator<T> mean, double eps) {
  using A = Accumulator<T>;
  A squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < width; ++i) {
    const A centered = static_cast<A>(x[i]) - mean;
    squares += centered * centered;
  }
  return A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
}

}  // namespace xtrain
