// GEMM backends of the CPU. Work is cut into blocks of rows of c, fixed by the shape alone, and
// each block is computed by one thread.

#include <cblas.h>

#include <concepts>
#include <vector>

#include "core/error.h"
#include "core/gemm_kernels.h"
#include "core/parallel.h"

namespace xtrain {
namespace {

// Rows of c that one task computes. More rows amortise packing b, fewer feed more threads.
int64_t rows_per_task(const GemmProblem& p) {
  constexpr int64_t kFew = 32, kMany = 256, kTasks = 8;
  const int64_t wanted = (p.m * p.batches() + kTasks - 1) / kTasks;
  return std::clamp<int64_t>((wanted + kFew - 1) / kFew * kFew, kFew, kMany);
}

// The elements of op(x) at (row, column).
template <class T>
T at(const T* x, const GemmOperand& op, int64_t row, int64_t column) {
  return op.transposed ? x[column * op.ld + row] : x[row * op.ld + column];
}

// Stores alpha * sum + beta * c, rounded once.
template <class Acc, class Out>
void store(const GemmProblem& p, Acc sum, Out& c) {
  const Acc scaled = static_cast<Acc>(p.alpha) * sum;
  c = static_cast<Out>(p.beta == 0.0 ? scaled
                                     : scaled + static_cast<Acc>(p.beta) * static_cast<Acc>(c));
}

// One dot product an element, in order of k.
template <class T, class Out>
void naive_rows(const GemmProblem& p, const T* a, const T* b, Out* c, int64_t begin, int64_t end) {
  using Acc = Accumulator<T>;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      Acc sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        sum += static_cast<Acc>(at(a, p.a, i, k)) * static_cast<Acc>(at(b, p.b, k, j));
      }
      store(p, sum, c[i * p.ldc + j]);
    }
  }
}

// Tiles of kTileRows x kTileColumns sums held in registers, over panels of a and b copied so that
// the inner loop reads both in order. Each sum runs over k in order, so an element's bits do not
// depend on where its tile lies.
constexpr int64_t kTileRows = 4, kTileColumns = 32;

template <class T, class Acc>
void pack_columns(const GemmProblem& p, const T* b, int64_t first, int64_t columns, Acc* panel) {
  for (int64_t k = 0; k < p.k; ++k) {
    for (int64_t j = 0; j < kTileColumns; ++j) {
      panel[k * kTileColumns + j] =
          j < columns ? static_cast<Acc>(at(b, p.b, k, first + j)) : Acc{0};
    }
  }
}

template <class T, class Acc>
void pack_rows(const GemmProblem& p, const T* a, int64_t first, int64_t rows, Acc* panel) {
  for (int64_t k = 0; k < p.k; ++k) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      panel[k * kTileRows + i] = i < rows ? static_cast<Acc>(at(a, p.a, first + i, k)) : Acc{0};
    }
  }
}

template <class Acc>
void multiply_tile(int64_t depth, const Acc* a, const Acc* b,
                   Acc (&sums)[kTileRows][kTileColumns]) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kTileRows; ++i) {
#pragma omp simd
      for (int64_t j = 0; j < kTileColumns; ++j) {
        sums[i][j] += a[k * kTileRows + i] * b[k * kTileColumns + j];
      }
    }
  }
}

template <class T, class Out>
void tiled_rows(const GemmProblem& p, const T* a, const T* b, Out* c, int64_t begin, int64_t end) {
  using Acc = Accumulator<T>;
  const int64_t row_tiles = (end - begin + kTileRows - 1) / kTileRows;
  std::vector<Acc> a_panels(row_tiles * kTileRows * p.k), b_panel(p.k * kTileColumns);
  for (int64_t t = 0; t < row_tiles; ++t) {
    const int64_t first = begin + t * kTileRows;
    pack_rows(p, a, first, std::min(kTileRows, end - first), a_panels.data() + t * kTileRows * p.k);
  }
  for (int64_t first_column = 0; first_column < p.n; first_column += kTileColumns) {
    const int64_t columns = std::min(kTileColumns, p.n - first_column);
    pack_columns(p, b, first_column, columns, b_panel.data());
    for (int64_t t = 0; t < row_tiles; ++t) {
      Acc sums[kTileRows][kTileColumns] = {};
      multiply_tile(p.k, a_panels.data() + t * kTileRows * p.k, b_panel.data(), sums);
      const int64_t first = begin + t * kTileRows, rows = std::min(kTileRows, end - first);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          store(p, sums[i][j], c[(first + i) * p.ldc + first_column + j]);
        }
      }
    }
  }
}

void blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha,
          const double* a, int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void blas(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const float* a,
          int lda, const float* b, int ldb, double beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, static_cast<float>(alpha), a, lda, b, ldb,
              static_cast<float>(beta), c, ldc);
}

template <std::floating_point T>
void library_rows(const GemmProblem& p, const T* a, const T* b, T* c, int64_t begin, int64_t end) {
  const T* rows = a + begin * (p.a.transposed ? 1 : p.a.ld);
  blas(p.a.transposed ? CblasTrans : CblasNoTrans, p.b.transposed ? CblasTrans : CblasNoTrans,
       static_cast<int>(end - begin), static_cast<int>(p.n), static_cast<int>(p.k), p.alpha, rows,
       static_cast<int>(p.a.ld), b, static_cast<int>(p.b.ld), p.beta, c + begin * p.ldc,
       static_cast<int>(p.ldc));
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
void library_rows(const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c, int64_t begin,
                  int64_t end) {
  const int64_t rows = end - begin;
  const std::vector<float> wide_a =
      widen(a + begin * (p.a.transposed ? 1 : p.a.ld), p.a, rows, p.k);
  const std::vector<float> wide_b = widen(b, p.b, p.k, p.n);
  std::vector<float> sums(rows * p.n);
  GemmProblem wide = p;
  wide.alpha = 1.0;
  wide.beta = 0.0;
  wide.a.ld = p.a.transposed ? rows : p.k;
  wide.b.ld = p.b.transposed ? p.k : p.n;
  wide.ldc = p.n;
  library_rows<float>(wide, wide_a.data(), wide_b.data(), sums.data(), 0, rows);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < p.n; ++j) store(p, sums[i * p.n + j], c[(begin + i) * p.ldc + j]);
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

template <class T, class Out>
void compute_rows(GemmBackend backend, const GemmProblem& p, const T* a, const T* b, Out* c,
                  int64_t begin, int64_t end) {
  switch (backend) {
    case GemmBackend::naive:
      return naive_rows(p, a, b, c, begin, end);
    case GemmBackend::tiled:
      return tiled_rows(p, a, b, c, begin, end);
    default:
      return library_rows(p, a, b, c, begin, end);
  }
}

}  // namespace

template <class T, class Out>
void gemm_kernel(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  GemmBackend backend = cpu.ctx.gemm;
  check(backend != GemmBackend::mma,
        "matmul: backend mma needs a GPU; use naive, tiled or library on the CPU");
  if (backend == GemmBackend::library) {
    check_blas_sizes(p);
    use_single_threaded_blas();
    if (p.k == 0) backend = GemmBackend::naive;  // BLAS may refuse the strides of an empty operand
  }
  const int64_t rows = rows_per_task(p), tasks = (p.m + rows - 1) / rows;
  parallel_for(cpu, p.batches() * tasks, [&](int64_t task) {
    const int64_t batch = task / tasks, begin = task % tasks * rows;
    compute_rows(backend, p, a + p.batch_offset(p.batch_stride_a, batch),
                 b + p.batch_offset(p.batch_stride_b, batch),
                 c + p.batch_offset(p.batch_stride_c, batch), begin, std::min(p.m, begin + rows));
  });
}

template void gemm_kernel(const Cpu&, const GemmProblem&, const double*, const double*, double*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const float*, const float*, float*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                          BFloat16*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
