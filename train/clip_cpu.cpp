#include <vector>

#include "core/parallel.h"
#include "train/clip_kernels.h"

namespace xtrain {

template <class A>
void sum_squares(const Cpu& cpu, int64_t n, const A* x, double* sum) {
  const int64_t blocks = (n + kElementBlock - 1) / kElementBlock;
  std::vector<double> partial(blocks, 0.0);
  parallel_for(cpu, blocks, [&](int64_t block) {
    const int64_t begin = block * kElementBlock, end = std::min(n, begin + kElementBlock);
    double block_sum = 0.0;
#pragma omp simd reduction(+ : block_sum)
    for (int64_t i = begin; i < end; ++i) {
      block_sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    partial[block] = block_sum;
  });
  *sum = 0.0;
  for (double p : partial) *sum += p;
}

template <class Count>
void compute_grad_scale(const Cpu&, const double* squares, const Count* count, double max_norm,
                        double* scale) {
  store_grad_scale(scale_of_sum(*squares, static_cast<double>(*count), max_norm), scale);
}

template void sum_squares(const Cpu&, int64_t, const double*, double*);
template void sum_squares(const Cpu&, int64_t, const float*, double*);
template void compute_grad_scale(const Cpu&, const double*, const int64_t*, double, double*);
template void compute_grad_scale(const Cpu&, const double*, const double*, double, double*);

}  // namespace xtrain
