#pragma once
// The kernels of embedding.h over contiguous tensors: n ids, a table of `rows` rows of `columns`
// elements. Ids outside the table, which check_indices has reported, are passed over.

#include "core/dispatch.h"

namespace xtrain {

// y[i] = weight[ids[i]]
template <class T>
void gather_rows(const Cpu& cpu, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                 const T* weight, T* y);
template <class T>
void gather_rows(const Cuda& cuda, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                 const T* weight, T* y);

// dweight[ids[i]] += dy[i], in the order of i.
template <class T>
void scatter_add_rows(const Cpu& cpu, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                      const T* dy, Accumulator<T>* dweight);
template <class T>
void scatter_add_rows(const Cuda& cuda, int64_t n, int64_t rows, int64_t columns,
                      const int32_t* ids, const T* dy, Accumulator<T>* dweight);

}  // namespace xtrain
