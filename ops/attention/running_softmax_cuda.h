#pragma once
// The softmax of one query over keys that come a few at a time, with its sum of values: what is
// summed so far is kept relative to the largest score so far (Milakov and Gimelshein, arXiv
// 1805.02867).

#include <type_traits>

#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"
#include "core/dtype.h"

namespace xtrain {

// Scores are kept in units whose exponential is the cheap one: f32 in powers of 2.
template <class A>
inline constexpr A kScoreUnit = std::is_same_v<A, double> ? A(1) : A(1.4426950408889634);
template <class A>
__device__ A exponential_of_score(A x) {
  if constexpr (std::is_same_v<A, double>) {
    return exp(x);
  } else {
    return exp2f(x);
  }
}

// Of some keys, and this lane's columns of the output.
template <class A, int kColumns>
struct RunningSoftmax {
  A maximum = -INFINITY, sum = 0, o[kColumns] = {};

  // Both become multiples of exp(-to), where `to` is at least the maximum.
  __device__ void rescale(A to) {
    const A factor = maximum == -INFINITY ? A(0) : exponential_of_score(maximum - to);
    maximum = to;
    sum *= factor;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) o[i] *= factor;
  }
  __device__ void add(const RunningSoftmax& other) {
    const A to = fmax(maximum, other.maximum);
    if (to == -INFINITY) return;
    RunningSoftmax scaled = other;
    scaled.rescale(to);
    rescale(to);
    sum += scaled.sum;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) o[i] += scaled.o[i];
  }
  // That of the lane whose number differs in the bits of `mask`.
  __device__ RunningSoftmax of_lane(int mask) const {
    RunningSoftmax other;
    other.maximum = exchange(maximum, mask);
    other.sum = exchange(sum, mask);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) other.o[i] = exchange(o[i], mask);
    return other;
  }
  // Adds kCount keys, of which `score` is -infinity where the query does not see one.
  template <int kCount, class T>
  __device__ void add(const A (&score)[kCount], const Pack<T> (&value)[kCount]) {
    A highest = maximum;
#pragma unroll
    for (int i = 0; i < kCount; ++i) highest = fmax(highest, score[i]);
    if (highest == -INFINITY) return;
    rescale(highest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A weight = exponential_of_score(score[i] - highest);
      const Values<T> x = values_of(value[i]);
      sum += weight;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[c] += weight * x.at[c];
    }
  }
};

}  // namespace xtrain
