#pragma once
// The last step of a norm, in forward and where backward makes the result again.

#include "core/cuda/row.h"

namespace xtrain {

// a b, rounded before anything is added to it.
__device__ inline float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double rounded_product(double a, double b) {
  return __dmul_rn(a, b);
}

// x_hat w + b for a pack; weight and bias may be null. Each operation rounds, so that the bits are
// those of any other kernel that does this.
template <class Shape, class T>
__device__ Pack<T> affine_pack(const Shape& shape, typename Shape::Column column, Values<T> x_hat,
                               const T* weight, const T* bias) {
  if (weight) {
    const Values<T> w = values_of(shape.load_constant(weight, column));
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) x_hat.at[i] = rounded_product(x_hat.at[i], w.at[i]);
  }
  if (bias) {
    const Values<T> b = values_of(shape.load_constant(bias, column));
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) x_hat.at[i] += b.at[i];
  }
  return pack_of<T>(x_hat);
}

}  // namespace xtrain
