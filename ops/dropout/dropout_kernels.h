#pragma once
// The kernel of dropout.h, forward and backward.

#include "core/dispatch.h"
#include "ops/dropout/dropout.h"

namespace xtrain {

// y = x / (1 - p) where kept, else 0, for contiguous x [rows, length]. y may be x.
template <class T>
void dropout_apply(const Cpu& cpu, const Dropout& dropout, const RandomKey& random, int64_t rows,
                   int64_t length, const T* x, T* y);
template <class T>
void dropout_apply(const Cuda& cuda, const Dropout& dropout, const RandomKey& random, int64_t rows,
                   int64_t length, const T* x, T* y);

}  // namespace xtrain
