#pragma once
// The kernels of swiglu.h over contiguous tensors: gate_up [rows, 2 * width], y [rows, width].

#include "core/dispatch.h"

namespace xtrain {

template <class T>
void swiglu_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, T* y);
template <class T>
void swiglu_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, T* y);

// dgate_up may be gate_up.
template <class T>
void swiglu_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up);
template <class T>
void swiglu_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up);

}  // namespace xtrain
