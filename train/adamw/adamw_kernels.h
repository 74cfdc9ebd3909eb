#pragma once
// The kernel of adamw.h over the arenas of all parameters.

#include <cmath>
#include <type_traits>

#include "core/dispatch.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"

namespace xtrain {

// Elements [begin, end) of the arenas, all of one parameter. Their moments, and their masters
// unless these are the values, lie `shift` before that. A table holds pieces as rows of four i64.
struct ArenaPiece {
  int64_t begin, end, decays, shift;
};
inline constexpr int64_t kArenaPieceFields = 4;

XT_HOST_DEVICE inline ArenaPiece piece_at(const int64_t* table, int64_t i) {
  const int64_t* row = table + i * kArenaPieceFields;
  return {row[0], row[1], row[2], row[3]};
}

// Elements outside of the pieces, padding too, are neither read nor written.
template <class T, class A = Accumulator<T>>
struct AdamWArenas {
  T* values;
  const A* grads;
  A *masters, *m, *v;  // masters: the values where T is A

  static constexpr bool kRounds = !std::is_same_v<T, A>;  // values are rounded masters
  // Where element i of the arenas has its master.
  XT_HOST_DEVICE A& master(int64_t i, int64_t shift) const {
    return masters[kRounds ? i - shift : i];
  }
};

// One step on the pieces; `scalars` and `scale` as in AdamW::step.
template <class T>
void adamw_update(const Cpu& cpu, const AdamWOptions& options, const double* scalars,
                  const double* scale, int64_t pieces, const int64_t* table,
                  const AdamWArenas<T>& arenas);
template <class T>
void adamw_update(const Cuda& cuda, const AdamWOptions& options, const double* scalars,
                  const double* scale, int64_t pieces, const int64_t* table,
                  const AdamWArenas<T>& arenas);

// The factors of one step in the type of the arithmetic.
template <class A>
struct AdamWFactors {
  A beta1, beta2, fresh1, fresh2, eps;
  A decay;       // learning rate * weight decay
  A rate;        // learning rate / (1 - beta1^t)
  A root_scale;  // 1 / sqrt(1 - beta2^t)
  A grad_factor;
};

template <class A>
XT_HOST_DEVICE AdamWFactors<A> adamw_factors(const AdamWOptions& o, const double* scalars,
                                             double grad_factor) {
  const double learning_rate = scalars[0];
  return {static_cast<A>(o.beta1),
          static_cast<A>(o.beta2),
          static_cast<A>(1.0 - o.beta1),
          static_cast<A>(1.0 - o.beta2),
          static_cast<A>(o.eps),
          static_cast<A>(learning_rate * o.weight_decay),
          static_cast<A>(learning_rate * scalars[1]),
          static_cast<A>(scalars[2]),
          static_cast<A>(grad_factor)};
}

// The update of one element. Compilers may or may not join a product and a sum into one rounding,
// so every such pair is written as an fma: then all devices agree in every bit.
template <class A>
XT_HOST_DEVICE void adamw_element(const AdamWFactors<A>& f, A decay, A grad, A& w, A& m, A& v) {
  using std::fma;
  using std::sqrt;
  const A g = grad * f.grad_factor;
  m = fma(f.beta1, m, f.fresh1 * g);
  v = fma(f.beta2, v, f.fresh2 * g * g);
  const A root = fma(sqrt(v), f.root_scale, f.eps);
  w = fma(-f.rate, m / root, fma(-decay, w, w));
}

}  // namespace xtrain
