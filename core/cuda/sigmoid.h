#pragma once
// The logistic function inside kernels, as exactly as elements of T can show. For bf16, which keeps
// 8 bits, the exponential and the quotient are the hardware's approximations, right to 2^-18.

#include "core/dtype.h"

namespace xtrain {

// 1 / (1 + exp(-z)).
template <class T>
__device__ Accumulator<T> sigmoid(Accumulator<T> z) {
  return 1 / (1 + ::exp(-z));
}
template <>
inline __device__ float sigmoid<BFloat16>(float z) {
  return __fdividef(1.0f, 1.0f + __expf(-z));
}

// x / (1 + exp(-z)).
template <class T>
__device__ Accumulator<T> times_sigmoid(Accumulator<T> x, Accumulator<T> z);
template <>
inline __device__ double times_sigmoid<double>(double x, double z) {
  return x / (1.0 + ::exp(-z));
}
template <>
inline __device__ float times_sigmoid<BFloat16>(float x, float z) {
  return __fdividef(x, 1.0f + __expf(-z));
}
// Rounding the sum to f32 costs more than all else here, so what it drops is divided by as well: a
// first quotient is corrected by its remainder, which has all the bits.
template <>
inline __device__ float times_sigmoid<float>(float x, float z) {
  const float e = expf(-z), sum = 1.0f + e;
  const float dropped = e > 1.0f ? (e - sum) + 1.0f : (1.0f - sum) + e;
  const float inverse = __fdividef(1.0f, sum), quotient = x * inverse;
  const float remainder = fmaf(-quotient, dropped, fmaf(-quotient, sum, x));
  const float corrected = fmaf(remainder, inverse, quotient);
  return e <= 0x1p125f ? corrected : x * 0.0f;  // beyond, 1 / sum is no normal number
}

}  // namespace xtrain
