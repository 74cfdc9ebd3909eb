#include "train/clip.h"

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {

double sum_of_squares(const Context& ctx, const Tensor& x) {
  check(x.is_contiguous(), "sum_of_squares: the tensor must be contiguous; got strides ",
        x.strides());
  check(x.dtype() != Dtype::bf16, "sum_of_squares: gradients must be f32 or f64; got bf16");
  const int64_t blocks = (x.numel() + kElementBlock - 1) / kElementBlock;
  std::vector<double> partial(blocks, 0.0);
  dispatch(ctx, x, "sum_of_squares", [&](auto cpu, auto scalar) {
    using T = decltype(scalar);
    const T* values = x.data<T>();
    parallel_for(cpu, blocks, [&](int64_t block) {
      const int64_t begin = block * kElementBlock, end = std::min(x.numel(), begin + kElementBlock);
      double sum = 0.0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = begin; i < end; ++i) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      partial[block] = sum;
    });
  });
  double sum = 0.0;
  for (double p : partial) sum += p;
  return sum;
}

GradScale grad_scale(double squares, double count, double max_norm) {
  GradScale scale;
  if (count == 0.0) return scale;
  scale.norm = std::sqrt(squares) / count;
  scale.finite = std::isfinite(scale.norm);
  scale.factor = 1.0 / count;
  if (max_norm > 0.0 && scale.norm > max_norm) scale.factor *= max_norm / scale.norm;
  return scale;
}

}  // namespace xtrain
