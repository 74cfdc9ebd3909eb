#pragma once
// The kernels of linear.h beside gemm.

#include "core/dispatch.h"

namespace xtrain {

// sums[j] = the sum over i of x[i, j], added to what sums holds when `accumulate`. x is contiguous.
template <class T>
void column_sums(const Cpu& cpu, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums);
template <class T>
void column_sums(const Cuda& cuda, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums);

inline constexpr int64_t kMostLinearRows = 8;  // of few_rows_linear

// y = x weight^T + bias of few rows on a GPU, where linear_products.h has_few_rows_kernel says so.
template <class T>
struct FewRowsLinear {
  int64_t rows, in, out;
  const T* weight;
  int64_t ld;     // elements from one line of weight to the next
  const T* bias;  // null: 0
  T* y;           // [rows, out], contiguous
};

// x [rows, in] is contiguous and begins at a multiple of 16 bytes.
template <class T>
void few_rows_linear(const Cuda& cuda, const FewRowsLinear<T>& p, const T* x);

}  // namespace xtrain
