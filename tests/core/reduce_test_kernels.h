#pragma once
// Kernels that do nothing but reduce, for the tests of core/cuda/reduce.h.

#include "core/dispatch.h"

namespace xtrain {

// Three reductions of each row of x [rows, columns] one behind the other in one kernel, each as the
// thread `columns - 1` of the row's threads sees it: [rows] each.
struct RowReductions {
  float* sums;
  float* largest;
  float* sums_of_squares;
};

// threads: of a row, whole warps; rows_of_block of them share a block.
void reduce_rows(const Cuda& cuda, int64_t rows, int columns, int threads, int rows_of_block,
                 const float* x, const RowReductions& results);

// The sum of groups of 8 neighbouring elements of x [count], count a multiple of 32, as seen by the
// first of each.
void reduce_groups_of_8(const Cuda& cuda, int count, const float* x, float* sums);

}  // namespace xtrain
