#pragma once
// The kernel of adamw.h over n contiguous elements of one parameter.

#include "core/dispatch.h"

namespace xtrain {

// The factors of one step, the same for all elements of a parameter.
struct AdamWFactors {
  double beta1, beta2, eps;
  double decay;       // learning rate * weight decay
  double rate;        // learning rate / (1 - beta1^t)
  double root_scale;  // 1 / sqrt(1 - beta2^t)
  double grad_factor;
};

// Updates w, m and v, and stores w rounded to T in `value`; value may be w.
template <class T, class A = Accumulator<T>>
void adamw_update(const Cpu& cpu, const AdamWFactors& factors, int64_t n, const A* grad, A* w, A* m,
                  A* v, T* value);

}  // namespace xtrain
