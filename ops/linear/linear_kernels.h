#pragma once
// The one kernel of linear.h beside gemm.

#include "core/dispatch.h"

namespace xtrain {

// sums[j] = the sum over i of x[i, j], added to what sums holds when `accumulate`. x is contiguous.
template <class T>
void column_sums(const Cpu& cpu, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums);
template <class T>
void column_sums(const Cuda& cuda, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums);

}  // namespace xtrain
