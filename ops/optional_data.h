#pragma once
// The elements of a tensor that may be absent, as kernels take them: null when it is undefined.

#include "core/tensor.h"

namespace xtrain {

template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

template <class T>
T* mutable_data_or_null(Tensor& x) {
  return x.defined() ? x.mutable_data<T>() : nullptr;
}

}  // namespace xtrain
