#pragma once
// The kernels of elementary.h over n contiguous elements.

#include "core/dispatch.h"
#include "ops/elementary/elementary.h"

namespace xtrain {

template <class T>
void elementary_forward(const Cpu& cpu, Elementary kind, int64_t n, const T* x, T* y);
template <class T>
void elementary_forward(const Cuda& cuda, Elementary kind, int64_t n, const T* x, T* y);

// `kept` is y, but x for log. dx may be dy.
template <class T>
void elementary_backward(const Cpu& cpu, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx);
template <class T>
void elementary_backward(const Cuda& cuda, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx);

}  // namespace xtrain
