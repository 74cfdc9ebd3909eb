#pragma once
// The GEMM backends of the GPU, one file each, and what their kernels take.

#include "core/cuda/strided_cuda.h"
#include "core/gemm_kernels.h"

namespace xtrain {

// c[i] = alpha * a[i] b[i] + beta * c[i] for every matrix of the problem, whose result is not
// empty. Each element of a result depends on its row of a and its column of b alone, and has the
// same bits every time.
template <class T, class Out>
void naive_gemm(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b, Out* c);
template <class T, class Out>
void tiled_gemm(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b, Out* c);
template <class Out>
void mma_gemm(const Cuda& cuda, const GemmProblem& problem, const BFloat16* a, const BFloat16* b,
              Out* c);

// By cuBLASLt or cuBLAS. `tf32` allows f32 operands to be rounded to TF32.
template <class T, class Out>
void library_gemm(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b, Out* c,
                  bool tf32);
// With the bias added, and gelu set, by cuBLASLt's epilogue, as gemm_bias_kernel.
template <class T>
bool library_gemm_bias(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b,
                       const T* bias, T* c, T* gelu, bool tf32);

// By a kernel that reads b once for all rows. Supported: at most 8 rows, rows of a and columns of b
// contiguous, whole packs of 16 bytes that begin at multiples of 16 bytes.
template <class T>
bool few_rows_supports(const GemmProblem& problem, const T* a, const T* b);
template <class T, class Out>
void few_rows_gemm(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b, Out* c);

// A problem as kernels take it, by value. The matrices of a batch are found by `batch`.
template <class T, class Out>
struct KernelProblem {
  using Acc = Accumulator<T>;
  int64_t m, n, k;
  GemmOperand a_layout, b_layout;
  int64_t ldc;
  Acc alpha, beta;
  const T* a;
  const T* b;
  Out* c;
  StridedIndex<3> batch;

  KernelProblem(const GemmProblem& p, const T* a_, const T* b_, Out* c_)
      : m(p.m),
        n(p.n),
        k(p.k),
        a_layout(p.a),
        b_layout(p.b),
        ldc(p.ldc),
        alpha(static_cast<Acc>(p.alpha)),
        beta(static_cast<Acc>(p.beta)),
        a(a_),
        b(b_),
        c(c_),
        batch(p.batch, {p.batch_stride_a, p.batch_stride_b, p.batch_stride_c}) {}

  // Where the matrices with this number in row-major batch order begin.
  struct Matrices {
    const T* a;
    const T* b;
    Out* c;
  };
  XT_HOST_DEVICE Matrices matrices(int64_t index) const {
    int64_t offset[3];
    batch.offsets(index, offset);
    return {a + offset[0], b + offset[1], c + offset[2]};
  }

  // What becomes of an element of c whose product is `sum`.
  XT_HOST_DEVICE Out scaled(Acc sum, const Out* old) const {
    return static_cast<Out>(beta == 0 ? alpha * sum : alpha * sum + beta * static_cast<Acc>(*old));
  }
};

}  // namespace xtrain
