#pragma once
// The kernels of arithmetic.h. Inputs are strided over the shape of the output, which is
// contiguous and may be an input that has its layout. Out is T, or Accumulator<T> for a result that
// is summed further.

#include "core/dispatch.h"
#include "ops/arithmetic/arithmetic.h"

namespace xtrain {

template <class T>
struct StridedInput {
  const T* data = nullptr;
  Strides strides;
};

template <class T, class Out>
void arithmetic_forward(const Cpu& cpu, Arithmetic kind, const Shape& shape, StridedInput<T> a,
                        StridedInput<T> b, Out* y);
template <class T, class Out>
void arithmetic_forward(const Cuda& cuda, Arithmetic kind, const Shape& shape, StridedInput<T> a,
                        StridedInput<T> b, Out* y);

// db of y = a / b.
template <class T, class Out>
void div_backward_divisor(const Cpu& cpu, const Shape& shape, StridedInput<T> dy, StridedInput<T> a,
                          StridedInput<T> b, Out* db);
template <class T, class Out>
void div_backward_divisor(const Cuda& cuda, const Shape& shape, StridedInput<T> dy,
                          StridedInput<T> a, StridedInput<T> b, Out* db);

template <class T>
void scale_forward(const Cpu& cpu, int64_t n, const T* x, double factor, T* y);
template <class T>
void scale_forward(const Cuda& cuda, int64_t n, const T* x, double factor, T* y);

}  // namespace xtrain
