#pragma once
// Exponentials inside kernels, as exactly as elements of T can show: for bf16, which keeps 8 bits,
// by the special function unit.

#include <cmath>

#include "core/dtype.h"

namespace xtrain {

inline constexpr float kLog2E = 1.44269504088896340736f;

// 2^x and exp(x) to about 2^-22 and 2^-21 of the value. Results too small for a normal number are
// 0.
inline __device__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline __device__ float approximate_exp(float x) {
  return exp2_approximate(x * kLog2E);
}

// exp(x) for a result of type T.
template <class T>
__device__ Accumulator<T> exponential(Accumulator<T> x) {
  return exp(x);
}
template <>
inline __device__ float exponential<BFloat16>(float x) {
  return approximate_exp(x);
}

}  // namespace xtrain
