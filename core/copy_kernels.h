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

// What the file of a device must instantiate: every pair of dtypes.
#define XT_COPY_PAIR(Device, From, To)                                                       \
  template void copy_elements(const Device&, const Shape&, const From*, const Strides&, To*, \
                              const Strides&)
#define XT_ADD_PAIR(Device, From, To)                                                       \
  template void add_elements(const Device&, const Shape&, const From*, const Strides&, To*, \
                             const Strides&)
#define XT_COPIES_FROM(Device, From)    \
  XT_COPY_PAIR(Device, From, double);   \
  XT_COPY_PAIR(Device, From, float);    \
  XT_COPY_PAIR(Device, From, BFloat16); \
  XT_COPY_PAIR(Device, From, int32_t);  \
  XT_COPY_PAIR(Device, From, int64_t);  \
  template void fill_elements(const Device&, const Shape&, From, From*, const Strides&)
#define XT_SUMS_FROM(Device, From)   \
  XT_ADD_PAIR(Device, From, double); \
  XT_ADD_PAIR(Device, From, float);  \
  XT_ADD_PAIR(Device, From, BFloat16)
#define XT_COPY_KERNELS(Device)     \
  XT_COPIES_FROM(Device, double);   \
  XT_COPIES_FROM(Device, float);    \
  XT_COPIES_FROM(Device, BFloat16); \
  XT_COPIES_FROM(Device, int32_t);  \
  XT_COPIES_FROM(Device, int64_t);  \
  XT_SUMS_FROM(Device, double);     \
  XT_SUMS_FROM(Device, float);      \
  XT_SUMS_FROM(Device, BFloat16)

}  // namespace xtrain
