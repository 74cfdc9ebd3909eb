// Matrix products by OpenBLAS, called for blocks of rows so that the split among threads is ours
// and does not depend on their number.

#include <cblas.h>

#include <concepts>
#include <vector>

#include "core/cpu/gemm_backends.h"
#include "core/error.h"

namespace xtrain {
namespace {

void blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha,
          const double* a, int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const float* a,
          int lda, const float* b, int ldb, double beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, static_cast<float>(alpha), a, lda, b, ldb,
              static_cast<float>(beta), c, ldc);
}

// Rows [begin, end) of c.
template <std::floating_point T>
void multiply_rows(const GemmProblem& p, const T* a, const T* b, T* c, int64_t begin, int64_t end) {
  blas(p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
       static_cast<int>(end - begin), static_cast<int>(p.n), static_cast<int>(p.k), p.alpha,
       a + offset_in(p.a, begin, 0), static_cast<int>(p.a.ld), b, static_cast<int>(p.b.ld), p.beta,
       c + begin * p.ldc, static_cast<int>(p.ldc));
}

std::vector<float> widen(const BFloat16* x, const GemmOperand& op, int64_t rows, int64_t columns) {
  std::vector<float> wide(rows * columns);
  const int64_t lines = op.transposed ? columns : rows, length = op.transposed ? rows : columns;
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t j = 0; j < length; ++j) wide[i * length + j] = x[i * op.ld + j];
  }
  return wide;
}

// bf16 products are exact in f32, so widening the operands first changes nothing but the speed.
template <class Out>
void multiply_rows(const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c,
                   int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  const std::vector<float> wide_a = widen(a + offset_in(p.a, begin, 0), p.a, rows, p.k);
  const std::vector<float> wide_b = widen(b, p.b, p.k, p.n);
  std::vector<float> sums(rows * p.n);
  GemmProblem wide = p;
  wide.alpha = 1.0;
  wide.beta = 0.0;
  wide.a.ld = p.a.transposed ? rows : p.k;
  wide.b.ld = p.b.transposed ? p.k : p.n;
  wide.ldc = p.n;
  multiply_rows<float>(wide, wide_a.data(), wide_b.data(), sums.data(), 0, rows);
  for (int64_t i = 0; i < rows; ++i) {
    store_sums(p, p.n, sums.data() + i * p.n, c + (begin + i) * p.ldc);
  }
}

// BLAS counts in 32-bit integers.
void check_blas_sizes(const GemmProblem& p) {
  const int64_t largest = std::max({p.m, p.n, p.k, p.a.ld, p.b.ld, p.ldc});
  check(largest <= INT32_MAX, "matmul: the library backend takes sizes and row strides up to ",
        INT32_MAX, "; got ", largest, "; use the tiled backend");
}

// The library's own threads would multiply with ours and make the split depend on their number.
void use_single_threaded_blas() {
  static const bool done = (openblas_set_num_threads(1), true);
  (void)done;
}

}  // namespace

template <class T, class Out>
void library_gemm(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  // BLAS may refuse the strides of an empty operand.
  if (p.k == 0) return naive_gemm(cpu, p, a, b, c);
  check_blas_sizes(p);
  use_single_threaded_blas();
  for_row_blocks(cpu, p, a, b, c, [&](const T* x, const T* y, Out* z, int64_t begin, int64_t end) {
    multiply_rows(p, x, y, z, begin, end);
  });
}

template void library_gemm(const Cpu&, const GemmProblem&, const double*, const double*, double*);
template void library_gemm(const Cpu&, const GemmProblem&, const float*, const float*, float*);
template void library_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                           BFloat16*);
template void library_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                           float*);

}  // namespace xtrain
