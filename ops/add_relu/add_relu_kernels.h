#pragma once
// The kernels of add_relu.h over n contiguous elements.

#include "core/dispatch.h"

namespace xtrain {

template <class T>
void add_relu_forward(const Cpu& cpu, int64_t n, const T* a, const T* b, T* y);
template <class T>
void add_relu_forward(const Cuda& cuda, int64_t n, const T* a, const T* b, T* y);

// dx, the gradient of a and of b, may be dy.
template <class T>
void add_relu_backward(const Cpu& cpu, int64_t n, const T* y, const T* dy, T* dx);
template <class T>
void add_relu_backward(const Cuda& cuda, int64_t n, const T* y, const T* dy, T* dx);

}  // namespace xtrain
