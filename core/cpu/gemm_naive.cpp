// The definition of a matrix product: one dot product an element, in order of k.

#include "core/cpu/gemm_backends.h"

namespace xtrain {

template <class T, class Out>
void naive_gemm(const Cpu& cpu, const GemmProblem& p, const T* all_a, const T* all_b, Out* all_c) {
  using Acc = Accumulator<T>;
  for_row_blocks(cpu, p, all_a, all_b, all_c,
                 [&](const T* a, const T* b, Out* c, int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     for (int64_t j = 0; j < p.n; ++j) {
                       Acc sum = 0;
                       for (int64_t k = 0; k < p.k; ++k) {
                         sum += static_cast<Acc>(a[offset_in(p.a, i, k)]) *
                                static_cast<Acc>(b[offset_in(p.b, k, j)]);
                       }
                       store_sums(p, 1, &sum, c + i * p.ldc + j);
                     }
                   }
                 });
}

template void naive_gemm(const Cpu&, const GemmProblem&, const double*, const double*, double*);
template void naive_gemm(const Cpu&, const GemmProblem&, const float*, const float*, float*);
template void naive_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                         BFloat16*);
template void naive_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
