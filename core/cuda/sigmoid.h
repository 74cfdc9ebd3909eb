#pragma once
// The logistic function inside kernels, as exactly as elements of T can show: for bf16, which keeps
// 8 bits, by the hardware's approximations.

#include "core/cuda/exponential.h"
#include "core/dtype.h"

namespace xtrain {

// 1 / x to about 2^-21 of the value, by one instruction of the special function unit. Results too
// small for a normal number are 0.
inline __device__ float approximate_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + exp(-z)).
template <class T>
__device__ Accumulator<T> sigmoid(Accumulator<T> z) {
  return 1 / (1 + ::exp(-z));
}
template <>
inline __device__ float sigmoid<BFloat16>(float z) {
  return approximate_inverse(1.0f + approximate_exp(-z));
}

// x / (1 + exp(-z)).
template <class T>
__device__ Accumulator<T> times_sigmoid(Accumulator<T> x, Accumulator<T> z) {
  return x * sigmoid<T>(z);
}
// In f32, rounding the sum costs more than all else, so what it drops is divided by as well: a
// first quotient is corrected by its remainder, which has all the bits.
template <>
inline __device__ float times_sigmoid<float>(float x, float z) {
  const float e = expf(-z), sum = 1.0f + e;
  const float dropped = e > 1.0f ? (e - sum) + 1.0f : (1.0f - sum) + e;
  const float inverse = approximate_inverse(sum), quotient = x * inverse;
  const float remainder = fmaf(-quotient, dropped, fmaf(-quotient, sum, x));
  const float corrected = fmaf(remainder, inverse, quotient);
  return e <= 0x1p125f ? corrected : x * 0.0f;  // beyond, 1 / sum is no normal number
}

}  // namespace xtrain
