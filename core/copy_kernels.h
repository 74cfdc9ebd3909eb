#pragma once
// The kernels of copy.h over tensors of one shape with strides of their own.

#include "core/dispatch.h"
#include "core/shape.h"

namespace xtrain {

// target = source, rounded once.
template <class From, class To>
void copy_elements(const Cpu& cpu, const Shape& shape, const From* source, const Strides& from,
                   To* target, const Strides& to);
template <class From, class To>
void copy_elements(const Cuda& cuda, const Shape& shape, const From* source, const Strides& from,
                   To* target, const Strides& to);

// target += source, for floating types.
template <class From, class To>
void add_elements(const Cpu& cpu, const Shape& shape, const From* source, const Strides& from,
                  To* target, const Strides& to);
template <class From, class To>
void add_elements(const Cuda& cuda, const Shape& shape, const From* source, const Strides& from,
                  To* target, const Strides& to);

template <class T>
void fill_elements(const Cpu& cpu, const Shape& shape, T value, T* target, const Strides& to);
template <class T>
void fill_elements(const Cuda& cuda, const Shape& shape, T value, T* target, const Strides& to);

}  // namespace xtrain
