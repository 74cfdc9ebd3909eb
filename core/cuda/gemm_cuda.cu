// Chooses among the GEMM backends of the GPU.

#include "core/cuda/gemm_backends_cuda.h"
#include "core/error.h"

namespace xtrain {

template <class T, class Out>
void gemm_kernel(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c) {
  switch (cuda.ctx.gemm) {
    case GemmBackend::naive:
      return naive_gemm(cuda, p, a, b, c);
    case GemmBackend::tiled:
      return tiled_gemm(cuda, p, a, b, c);
    case GemmBackend::mma:
      if constexpr (std::is_same_v<T, BFloat16>) {
        return mma_gemm(cuda, p, a, b, c);
      } else {
        fail("matmul: backend mma takes bf16 operands; got ", dtype_of<T>,
             ": use naive, tiled, library or library_tf32");
      }
    case GemmBackend::library:
    case GemmBackend::library_tf32:
      return library_gemm(cuda, p, a, b, c, cuda.ctx.gemm == GemmBackend::library_tf32);
  }
}

template <class T>
bool gemm_bias_kernel(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, const T* bias,
                      T* c, T* gelu) {
  if (cuda.ctx.gemm != GemmBackend::library && cuda.ctx.gemm != GemmBackend::library_tf32) {
    return false;
  }
  return library_gemm_bias(cuda, p, a, b, bias, c, gelu,
                           cuda.ctx.gemm == GemmBackend::library_tf32);
}

template void gemm_kernel(const Cuda&, const GemmProblem&, const double*, const double*, double*);
template void gemm_kernel(const Cuda&, const GemmProblem&, const float*, const float*, float*);
template void gemm_kernel(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                          BFloat16*);
template void gemm_kernel(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                          float*);
template bool gemm_bias_kernel(const Cuda&, const GemmProblem&, const double*, const double*,
                               const double*, double*, double*);
template bool gemm_bias_kernel(const Cuda&, const GemmProblem&, const float*, const float*,
                               const float*, float*, float*);
template bool gemm_bias_kernel(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                               const BFloat16*, BFloat16*, BFloat16*);

}  // namespace xtrain
