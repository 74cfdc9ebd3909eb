#include <cmath>

#include "core/parallel.h"
#include "train/adamw/adamw_kernels.h"

namespace xtrain {

template <class T, class A>
void adamw_update(const Cpu& cpu, const AdamWFactors& f, int64_t n, const A* grad, A* w, A* m, A* v,
                  T* value) {
  const A beta1 = static_cast<A>(f.beta1), beta2 = static_cast<A>(f.beta2);
  const A fresh1 = static_cast<A>(1.0 - f.beta1), fresh2 = static_cast<A>(1.0 - f.beta2);
  const A decay = static_cast<A>(f.decay), rate = static_cast<A>(f.rate);
  const A root_scale = static_cast<A>(f.root_scale), eps = static_cast<A>(f.eps);
  const A grad_factor = static_cast<A>(f.grad_factor);
  parallel_blocks(cpu, n, kElementBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A g = grad[i] * grad_factor;
      m[i] = beta1 * m[i] + fresh1 * g;
      v[i] = beta2 * v[i] + fresh2 * g * g;
      w[i] = w[i] - decay * w[i] - rate * m[i] / (std::sqrt(v[i]) * root_scale + eps);
      value[i] = static_cast<T>(w[i]);
    }
  });
}

template void adamw_update(const Cpu&, const AdamWFactors&, int64_t, const double*, double*,
                           double*, double*, double*);
template void adamw_update(const Cpu&, const AdamWFactors&, int64_t, const float*, float*, float*,
                           float*, float*);
template void adamw_update(const Cpu&, const AdamWFactors&, int64_t, const float*, float*, float*,
                           float*, BFloat16*);

}  // namespace xtrain
