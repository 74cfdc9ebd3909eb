#include "core/cuda/launch.h"
#include "ops/append_rows/append_rows_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 128;

// A block copies one row after the other.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_rows(AppendRows p, const T* x, T* table) {
  for (int64_t row = blockIdx.x; row < p.batch * p.time; row += gridDim.x) {
    const int64_t b = row / p.time, t = row % p.time, target = p.target(b, t);
    if (target < 0) continue;
    const T* from = x + b * p.batch_stride + t * p.time_stride;
    T* to = table + target * p.width;
    for (int64_t i = threadIdx.x; i < p.width; i += kThreads) to[i] = from[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_counts(int64_t n, const int32_t* a, const int32_t* b, int32_t* sum) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

}  // namespace

template <class T>
void append_rows(const Cuda& cuda, const AppendRows& p, const T* x, T* table) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(p.batch * p.time, 1), kThreads}), (copy_rows<T>), p, x,
            table);
}

void add_counts(const Cuda& cuda, int64_t n, const int32_t* a, const int32_t* b, int32_t* sum) {
  XT_LAUNCH(cuda, (LaunchShape{grid_for(n, kThreads), kThreads}), sum_counts, n, a, b, sum);
}

#define XT_APPEND_ROWS(T) template void append_rows(const Cuda&, const AppendRows&, const T*, T*);
XT_APPEND_ROWS(double)
XT_APPEND_ROWS(float)
XT_APPEND_ROWS(BFloat16)
#undef XT_APPEND_ROWS

}  // namespace xtrain
