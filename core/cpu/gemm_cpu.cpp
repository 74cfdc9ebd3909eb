// Chooses among the GEMM backends of the CPU.

#include "core/cpu/gemm_backends.h"
#include "core/error.h"

namespace xtrain {

template <class T, class Out>
void gemm_kernel(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  switch (cpu.ctx.gemm) {
    case GemmBackend::naive:
      return naive_gemm(cpu, p, a, b, c);
    case GemmBackend::tiled:
      return tiled_gemm(cpu, p, a, b, c);
    case GemmBackend::library:
      return library_gemm(cpu, p, a, b, c);
    case GemmBackend::mma:
    case GemmBackend::library_tf32:
      fail("matmul: backend ", name_of(cpu.ctx.gemm),
           " needs a GPU; use naive, tiled or library on the CPU");
  }
}

template void gemm_kernel(const Cpu&, const GemmProblem&, const double*, const double*, double*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const float*, const float*, float*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                          BFloat16*);
template void gemm_kernel(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
