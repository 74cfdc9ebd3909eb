#pragma once
// The kernels of swiglu.h over contiguous tensors: gate_up [rows, 2 * width], y [rows, width].

#include "core/dispatch.h"

namespace xtrain {

template <class T>
void swiglu_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, T* y);
template <class T>
void swiglu_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, T* y);

// Sets dgate_up and, unless y is null, y to the bits of forward. dgate_up may be gate_up, y may be
// dy.
template <class T>
void swiglu_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up, T* y);
template <class T>
void swiglu_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up, T* y);

}  // namespace xtrain
