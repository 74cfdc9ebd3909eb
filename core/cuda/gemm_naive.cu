// The definition of a matrix product: one thread an element, which adds in order of k.

#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/launch.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;

template <class T, class Out>
__global__ void multiply_elements(KernelProblem<T, Out> p, int64_t elements) {
  using Acc = Accumulator<T>;
  const GemmOperand &x = p.a_layout, &y = p.b_layout;
  const int64_t a_row = x.transposed ? 1 : x.ld, a_step = x.transposed ? x.ld : 1;
  const int64_t b_step = y.transposed ? 1 : y.ld, b_column = y.transposed ? y.ld : 1;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += stride) {
    const auto at = p.matrices(i / (p.m * p.n));
    const int64_t row = i / p.n % p.m, column = i % p.n;
    const T* a = at.a + row * a_row;
    const T* b = at.b + column * b_column;
    Acc sum = 0;
    for (int64_t k = 0; k < p.k; ++k) {
      sum += static_cast<Acc>(a[k * a_step]) * static_cast<Acc>(b[k * b_step]);
    }
    Out* c = at.c + row * p.ldc + column;
    *c = p.scaled(sum, c);
  }
}

}  // namespace

template <class T, class Out>
void naive_gemm(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c) {
  const int64_t elements = p.batches() * p.m * p.n;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(elements, kThreads), kThreads}),
            (multiply_elements<T, Out>), KernelProblem<T, Out>(p, a, b, c), elements);
}

template void naive_gemm(const Cuda&, const GemmProblem&, const double*, const double*, double*);
template void naive_gemm(const Cuda&, const GemmProblem&, const float*, const float*, float*);
template void naive_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                         BFloat16*);
template void naive_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
