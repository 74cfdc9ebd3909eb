#include <vector>

#include "core/parallel.h"
#include "train/clip_kernels.h"

namespace xtrain {
namespace {

// In f64 for every A: the norm of a large model is a sum of very many small numbers.
template <class A>
double block_squares(const A* x, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  return sum;
}

}  // namespace

template <class A>
void sum_squares(const Cpu& cpu, int64_t n, const A* x, double* sum) {
  const int64_t blocks = (n + kElementBlock - 1) / kElementBlock;
  std::vector<double> partial(blocks, 0.0);
  parallel_for(cpu, blocks, [&](int64_t block) {
    const int64_t begin = block * kElementBlock;
    partial[block] = block_squares(x + begin, std::min(kElementBlock, n - begin));
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
