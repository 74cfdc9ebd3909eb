// Products of few rows with a matrix whose columns are contiguous, as when a model writes: y = x
// W^T of one token or some. All of W is read for them, so the rate of memory is the limit and every
// other kernel, made for tiles of rows, stays below it.
//
// A warp computes one column of c for all rows: its lanes read a column of b in packs of 16 bytes,
// once, and add up in their order. So a result depends on its row of a and its column of b alone,
// not on how many rows there are.

#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"

namespace xtrain {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kMostRows = 8;
constexpr int kAhead = 4;  // packs of a lane that are on their way together

template <int kRows, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    multiply_few_rows(const __grid_constant__ KernelProblem<T, Out> p) {
  using Acc = Accumulator<T>;
  const int64_t column = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (column >= p.n) return;
  const auto at = p.matrices(blockIdx.y);
  const T* const b = at.b + column * p.b_layout.ld;
  const int64_t lane = threadIdx.x % kWarp;
  Acc sum[kRows] = {};
  constexpr int64_t kStep = kWarp * kPackSize<T>;
  for (int64_t first = lane * kPackSize<T>; first < p.k; first += kStep * kAhead) {
    Pack<T> pack[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kStep;
      if (k < p.k) pack[i] = load_pack_streaming(b + k);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kStep;
      if (k >= p.k) break;
      const Values<T> y = values_of(pack[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= p.m) break;
        const Values<T> x = values_of(load_pack_constant(at.a + r * p.a_layout.ld + k));
#pragma unroll
        for (int c = 0; c < kPackSize<T>; ++c) sum[r] += x.at[c] * y.at[c];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= p.m) break;
    const Acc total = warp_reduce(sum[r], Add());
    Out* const c = at.c + r * p.ldc + column;
    if (lane == 0) *c = p.scaled(total, c);
  }
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
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, kWarps)), static_cast<unsigned>(p.batches()));
  const LaunchShape shape{grid, kThreads};
  if (p.m == 1) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<1, T, Out>), problem);
  } else if (p.m == 2) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<2, T, Out>), problem);
  } else if (p.m <= 4) {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<4, T, Out>), problem);
  } else {
    XT_LAUNCH(cuda, shape, (multiply_few_rows<kMostRows, T, Out>), problem);
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
