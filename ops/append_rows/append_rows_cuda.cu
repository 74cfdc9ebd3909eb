#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "ops/append_rows/append_rows_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 128;

// A block copies one row after the other, of the table of its blockIdx.y. Unit is what a thread
// copies at a time: 16 bytes or an element; sizes are counted in units.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    copy_rows(AppendRows p, TableRows<Unit> first, TableRows<Unit> second) {
  let_next_begin();
  await_kernels_before();
  const TableRows<Unit> rows = blockIdx.y == 0 ? first : second;
  for (int64_t row = blockIdx.x; row < p.batch * p.time; row += gridDim.x) {
    const int64_t b = row / p.time, t = row % p.time, target = p.target(b, t);
    if (target < 0) continue;
    const Unit* from = rows.x + b * rows.batch_stride + t * rows.time_stride;
    Unit* to = rows.table + target * p.width;
    for (int64_t i = threadIdx.x; i < p.width; i += kThreads) to[i] = from[i];
  }
}

template <class Unit, class T>
TableRows<Unit> in_units(const TableRows<T>& rows) {
  constexpr int64_t kElements = sizeof(Unit) / sizeof(T);
  return {reinterpret_cast<const Unit*>(rows.x), rows.batch_stride / kElements,
          rows.time_stride / kElements, reinterpret_cast<Unit*>(rows.table)};
}

template <class Unit, class T>
void copy_units(const Cuda& cuda, AppendRows p, std::span<const TableRows<T>> tables) {
  p.width /= static_cast<int64_t>(sizeof(Unit) / sizeof(T));
  const dim3 grid(grid_for(p.batch * p.time, 1).x, static_cast<unsigned>(tables.size()));
  XT_LAUNCH_EARLY(cuda, (LaunchShape{grid, kThreads}), copy_rows<Unit>, p,
                  in_units<Unit>(tables.front()), in_units<Unit>(tables.back()));
}

__global__ void __launch_bounds__(kThreads)
    sum_counts(int64_t n, const int32_t* a, const int32_t* b, int32_t* sum) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

}  // namespace

template <class T>
void append_rows(const Cuda& cuda, const AppendRows& p, std::span<const TableRows<T>> tables) {
  bool packs = true;
  for (const TableRows<T>& rows : tables) {
    packs = packs && fits_packs(p.width, rows.x, rows.table) &&
            rows.batch_stride % kPackSize<T> == 0 && rows.time_stride % kPackSize<T> == 0;
  }
  packs ? copy_units<uint4>(cuda, p, tables) : copy_units<T>(cuda, p, tables);
}

void add_counts(const Cuda& cuda, int64_t n, const int32_t* a, const int32_t* b, int32_t* sum) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(n, kThreads), kThreads}), sum_counts, n, a, b, sum);
}

#define XT_APPEND_ROWS(T) \
  template void append_rows(const Cuda&, const AppendRows&, std::span<const TableRows<T>>);
XT_APPEND_ROWS(double)
XT_APPEND_ROWS(float)
XT_APPEND_ROWS(BFloat16)
#undef XT_APPEND_ROWS

}  // namespace xtrain
