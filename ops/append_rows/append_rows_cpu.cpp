#include <algorithm>

#include "core/parallel.h"
#include "ops/append_rows/append_rows_kernels.h"

namespace xtrain {

template <class T>
void append_rows(const Cpu& cpu, const AppendRows& p, std::span<const TableRows<T>> tables) {
  const int64_t block = std::max<int64_t>(1, kElementBlock / p.width);
  for (const TableRows<T>& rows : tables) {
    parallel_blocks(cpu, p.batch * p.time, block, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / p.time, t = i % p.time, target = p.target(b, t);
        if (target < 0) continue;
        const T* const from = rows.x + b * rows.batch_stride + t * rows.time_stride;
        std::copy_n(from, p.width, rows.table + target * p.width);
      }
    });
  }
}

void add_counts(const Cpu&, int64_t n, const int32_t* a, const int32_t* b, int32_t* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

#define XT_APPEND_ROWS(T) \
  template void append_rows(const Cpu&, const AppendRows&, std::span<const TableRows<T>>);
XT_APPEND_ROWS(double)
XT_APPEND_ROWS(float)
XT_APPEND_ROWS(BFloat16)
#undef XT_APPEND_ROWS

}  // namespace xtrain
