#pragma once
// The kernels of embedding.h over contiguous tensors: n ids, rows of `columns` elements.

#include "core/dispatch.h"

namespace xtrain {

// The first position whose id is not in [0, rows), or n. The only kernel that reads ids unchecked.
int64_t first_id_outside(const Cpu& cpu, int64_t n, const int32_t* ids, int64_t rows);

// y[i] = weight[ids[i]]
template <class T>
void gather_rows(const Cpu& cpu, int64_t n, int64_t columns, const int32_t* ids, const T* weight,
                 T* y);

// dweight[ids[i]] += dy[i], in the order of i.
template <class T>
void scatter_add_rows(const Cpu& cpu, int64_t n, int64_t columns, const int32_t* ids, const T* dy,
                      Accumulator<T>* dweight);

}  // namespace xtrain
