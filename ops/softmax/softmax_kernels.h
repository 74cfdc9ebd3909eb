#pragma once
// The kernels of softmax.h over rows of `width` contiguous elements, one row behind the other.

#include "core/dispatch.h"
#include "ops/softmax/softmax.h"

namespace xtrain {

template <class T>
void softmax_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* x, T* p);
template <class T>
void softmax_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* x, T* p);
template <class T>
void log_softmax_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* x, T* y);
template <class T>
void log_softmax_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* x, T* y);

// dx may be dp or dy.
template <class T>
void softmax_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* p, const T* dp, T* dx);
template <class T>
void softmax_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* p, const T* dp,
                      T* dx);
template <class T>
void log_softmax_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* y, const T* dy,
                          T* dx);
template <class T>
void log_softmax_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* y, const T* dy,
                          T* dx);

}  // namespace xtrain
