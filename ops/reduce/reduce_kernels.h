#pragma once
// The kernel of reduce.h.

#include "core/dispatch.h"

namespace xtrain {

// y[o, i] = factor * sum over l of x[o, l, i], for contiguous x [outer, length, inner].
template <class T, class Out>
void sum_middle(const Cpu& cpu, int64_t outer, int64_t length, int64_t inner, const T* x,
                double factor, Out* y);
template <class T, class Out>
void sum_middle(const Cuda& cuda, int64_t outer, int64_t length, int64_t inner, const T* x,
                double factor, Out* y);

}  // namespace xtrain
