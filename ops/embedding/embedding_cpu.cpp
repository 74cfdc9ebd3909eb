#include <algorithm>

#include "core/parallel.h"
#include "ops/embedding/embedding_kernels.h"

namespace xtrain {

template <class T>
void gather_rows(const Cpu& cpu, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                 const T* weight, T* y) {
  parallel_for(cpu, n, [&](int64_t i) {
    if (ids[i] < 0 || ids[i] >= rows) return;
    const T* row = weight + ids[i] * columns;
    std::copy(row, row + columns, y + i * columns);
  });
}

// A task owns some columns and walks through all ids: no two tasks write one element, the order of
// each sum is that of the ids, and a frequent id keeps no task waiting.
template <class T>
void scatter_add_rows(const Cpu& cpu, int64_t n, int64_t rows, int64_t columns, const int32_t* ids,
                      const T* dy, Accumulator<T>* dweight) {
  using A = Accumulator<T>;
  constexpr int64_t kColumns = 32;
  parallel_blocks(cpu, columns, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; ++i) {
      if (ids[i] < 0 || ids[i] >= rows) continue;
      const T* row = dy + i * columns;
      A* target = dweight + ids[i] * columns;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) target[j] += static_cast<A>(row[j]);
    }
  });
}

#define XT_EMBEDDING(T)                                                                           \
  template void gather_rows(const Cpu&, int64_t, int64_t, int64_t, const int32_t*, const T*, T*); \
  template void scatter_add_rows(const Cpu&, int64_t, int64_t, int64_t, const int32_t*, const T*, \
                                 Accumulator<T>*);
XT_EMBEDDING(double)
XT_EMBEDDING(float)
XT_EMBEDDING(BFloat16)
#undef XT_EMBEDDING

}  // namespace xtrain
