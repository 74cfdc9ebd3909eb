#include "core/parallel.h"
#include "ops/linear/linear_kernels.h"

namespace xtrain {
namespace {

// A task owns some columns and walks down all rows. Sums of blocks of rows are added up, so that
// rounding errors grow with the number of blocks and not with that of rows.
constexpr int64_t kColumns = 64, kRows = 256;

template <class A, class T>
void add_block(const T* x, int64_t rows, int64_t row_stride, int64_t width, A* total) {
  A sums[kColumns] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = x + i * row_stride;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) sums[j] += static_cast<A>(row[j]);
  }
  for (int64_t j = 0; j < width; ++j) total[j] += sums[j];
}

}  // namespace

template <class T>
void column_sums(const Cpu& cpu, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums) {
  parallel_blocks(cpu, columns, kColumns, [&](int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    Accumulator<T> total[kColumns] = {};
    for (int64_t i = 0; i < rows; i += kRows) {
      add_block(x + i * columns + begin, std::min(kRows, rows - i), columns, width, total);
    }
    for (int64_t j = 0; j < width; ++j) {
      sums[begin + j] = accumulate ? sums[begin + j] + total[j] : total[j];
    }
  });
}

#define XT_LINEAR(T) \
  template void column_sums(const Cpu&, int64_t, int64_t, const T*, bool, Accumulator<T>*);
XT_LINEAR(double)
XT_LINEAR(float)
XT_LINEAR(BFloat16)
#undef XT_LINEAR

}  // namespace xtrain
