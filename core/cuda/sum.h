#pragma once
// Sums over one dimension of a contiguous tensor: the grid stage of reductions.

#include "core/dispatch.h"

namespace xtrain {

// x [outer, length, inner], summed over length.
struct MiddleSizes {
  int64_t outer, length, inner;
};

// Where sum number i, counted over [outer, inner], goes: y[i * stride] becomes factor times the
// sum, added to what y holds when `accumulate`.
template <class Out>
struct SumTarget {
  Out* y;
  int64_t stride = 1;
  bool accumulate = false;
  double factor = 1.0;
};

// Such sums of two tensors of the same sizes; the second only where its target's y is not null.
template <class T, class Out>
struct SumPair {
  const T* x[2];
  SumTarget<Out> target[2];
};

// Blocks of at most 64 additions in Accumulator<T>, their sums in f64, in an order that depends on
// the sizes alone. T, Out: f64, f64; f32 or bf16, f32 or bf16.
template <class T, class Out>
void sum_over_middle(const Cuda& cuda, const MiddleSizes& sizes, const T* x,
                     const SumTarget<Out>& target);
template <class T, class Out>
void sum_over_middle(const Cuda& cuda, const MiddleSizes& sizes, const SumPair<T, Out>& pair);

}  // namespace xtrain
