// The backend for products of few rows (few_rows.h).

#include "core/cuda/few_rows.h"
#include "core/cuda/gemm_backends_cuda.h"

namespace xtrain {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

template <int kRows, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    multiply_few_rows(const __grid_constant__ KernelProblem<T, Out> p, int warps_of_column) {
  const auto at = p.matrices(blockIdx.y);
  const int m = static_cast<int>(p.m);
  FewRowsColumn<kRows, kWarps, T> product(
      MatrixLines<T>{at.b, p.b_layout.ld, p.n, p.k, warps_of_column});
  product.multiply(
      m, [&](int r, int64_t k) { return load_pack_constant(at.a + r * p.a_layout.ld + k); });
  product.store(m, [&](int r, int64_t column, Accumulator<T> sum) {
    Out* const c = at.c + r * p.ldc + column;
    *c = p.scaled(sum, c);
  });
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
  return p.m <= kMostFewRows && p.k % kPackSize<T> == 0 && (p.b.transposed || single_column) &&
         !p.a.transposed && p.batches() <= kMostBatches &&
         lines_are_packs(a, p.a.ld, p.batch_stride_a) &&
         lines_are_packs(b, single_column ? 0 : p.b.ld, p.batch_stride_b);
}

template <class T, class Out>
void few_rows_gemm(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c) {
  const KernelProblem<T, Out> problem(p, a, b, c);
  constexpr int kResident = 32;
  const int warps = warps_of_line<T>(cuda, p.n * p.batches(), p.k, kWarps, kResident);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, kWarps / warps)),
                  static_cast<unsigned>(p.batches()));
  with_room_for_rows(p.m, [&](auto rows) {
    XT_LAUNCH(cuda, (LaunchShape{grid, kThreads}), (multiply_few_rows<rows.value, T, Out>), problem,
              warps);
  });
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
