#pragma once
// The kernels of activation.h over n contiguous elements.

#include "core/dispatch.h"
#include "ops/activation/activation.h"

namespace xtrain {

template <class T>
void activation_forward(const Cpu& cpu, Activation kind, int64_t n, const T* x, T* y);
template <class T>
void activation_forward(const Cuda& cuda, Activation kind, int64_t n, const T* x, T* y);

// Sets dx and, unless y is null, y to the bits of forward. Either may be x or dy.
template <class T>
void activation_backward(const Cpu& cpu, Activation kind, int64_t n, const T* x, const T* dy, T* dx,
                         T* y);
template <class T>
void activation_backward(const Cuda& cuda, Activation kind, int64_t n, const T* x, const T* dy,
                         T* dx, T* y);

}  // namespace xtrain
