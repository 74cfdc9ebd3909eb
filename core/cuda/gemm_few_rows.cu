// Products of few rows with a matrix whose columns are contiguous, as when a model writes: y = x
// W^T of one token or some. All of W is read for them, so the rate of memory is the limit and every
// other kernel, made for tiles of rows, stays below it.
//
// Some warps compute one column of c for all rows: their lanes read a column of b in packs of 16
// bytes, once, and add up in a fixed order. How many warps share a column follows from the sizes of
// b: as many as it takes to have all of it on its way at once. So a result depends on its row of a,
// its column of b and the sizes of b, not on how many rows there are.

#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"

namespace xtrain {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kMostRows = 8;
constexpr int kAhead = 4;  // packs of a lane that are on their way together

// Adds up what the lanes of a warp have of each row.
template <int kRows, class T>
struct ColumnSums {
  using Acc = Accumulator<T>;
  Acc at[kRows] = {};

  // The products of a column's elements from `k` on.
  template <class P>
  __device__ void add(const P& p, const T* a, const Pack<T>& column, int64_t k) {
    const Values<T> y = values_of(column);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= p.m) break;
      const Values<T> x = values_of(load_pack_constant(a + r * p.a_layout.ld + k));
#pragma unroll
      for (int c = 0; c < kPackSize<T>; ++c) at[r] += x.at[c] * y.at[c];
    }
  }
};

template <int kRows, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    multiply_few_rows(const __grid_constant__ KernelProblem<T, Out> p, int warps_of_column) {
  using Acc = Accumulator<T>;
  __shared__ Acc sums[kWarps][kRows];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, part = warp % warps_of_column;
  const int64_t columns = kWarps / warps_of_column;
  const int64_t column = blockIdx.x * columns + warp / warps_of_column;
  const bool inside = column < p.n;
  const auto at = p.matrices(blockIdx.y);
  const T* const b = at.b + column * p.b_layout.ld;
  const int64_t step = int64_t{kWarp} * kPackSize<T> * warps_of_column;
  const int64_t begin = (part * kWarp + lane) * kPackSize<T>;

  ColumnSums<kRows, T> sum;
  for (int64_t first = begin; inside && first < p.k; first += step * kAhead) {
    Pack<T> pack[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * step < p.k) pack[i] = load_pack_streaming(b + first + i * step);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * step < p.k) sum.add(p, at.a, pack[i], first + i * step);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= p.m) break;
    sum.at[r] = warp_reduce(sum.at[r], Add());
    if (lane == 0) sums[warp][r] = sum.at[r];
  }
  __syncthreads();
  // One thread puts the parts of a column together, in their order.
  if (!inside || part > 0 || lane >= kRows || lane >= p.m) return;
  Acc total = sums[warp][lane];
  for (int i = 1; i < warps_of_column; ++i) total += sums[warp + i][lane];
  Out* const c = at.c + lane * p.ldc + column;
  *c = p.scaled(total, c);
}

// Enough warps for all multiprocessors, as long as each has a whole step of its column.
template <class T>
int warps_of_column(const Cuda& cuda, const GemmProblem& p) {
  constexpr int kEnough = 32;  // warps of a multiprocessor
  const int64_t wanted = int64_t{kEnough} * gpu_of(cuda).multiprocessors;
  int warps = 1;
  while (warps < kWarps && p.n * p.batches() * warps < wanted &&
         p.k >= 2 * warps * kWarp * kPackSize<T>) {
    warps *= 2;
  }
  return warps;
}

template <class T>
bool lines_are_packs(const T* x, int64_t ld, const Strides& batch) {
  bool fits = fits_packs(ld, x);
  for (int64_t stride : batch) fits = fits && stride % kPackSize<T> == 0;
  return fits;
}

}  // namespace

template <class T>
bool few_rows_supports(const GemmProblem& p, const T* a, const T* b) {
  constexpr int64_t kMostBatches = 65535;
  const bool single_column = p.n == 1 && (p.b.transposed || p.b.ld == 1);  // any ld is as good
  return p.m <= kMostRows && p.k % kPackSize<T> == 0 && (p.b.transposed || single_column) &&
         !p.a.transposed && p.batches() <= kMostBatches &&
         lines_are_packs(a, p.a.ld, p.batch_stride_a) &&
         lines_are_packs(b, single_column ? 0 : p.b.ld, p.batch_stride_b);
}

template <class T, class Out>
void few_rows_gemm(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c) {
  const KernelProblem<T, Out> problem(p, a, b, c);
  const int warps = warps_of_column<T>(cuda, p);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, kWarps / warps)),
                  static_cast<unsigned>(p.batches()));
  const LaunchShape shape{grid, kThreads};
  if (p.m == 1) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<1, T, Out>), problem, warps);
  } else if (p.m == 2) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<2, T, Out>), problem, warps);
  } else if (p.m <= 4) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<4, T, Out>), problem, warps);
  } else {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<kMostRows, T, Out>), problem, warps);
  }
}

#define XT_FEW_ROWS(T) template bool few_rows_supports(const GemmProblem&, const T*, const T*);
XT_FEW_ROWS(double)
XT_FEW_ROWS(float)
XT_FEW_ROWS(BFloat16)
#undef XT_FEW_ROWS
template void few_rows_gemm(const Cuda&, const GemmProblem&, const double*, const double*, double*);
template void few_rows_gemm(const Cuda&, const GemmProblem&, const float*, const float*, float*);
template void few_rows_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                            BFloat16*);
template void few_rows_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                            float*);

}  // namespace xtrain
