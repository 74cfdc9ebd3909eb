#include "core/parallel.h"
#include "train/adamw/adamw_kernels.h"
#include "train/clip_kernels.h"

namespace xtrain {

template <class T>
void adamw_update(const Cpu& cpu, const AdamWOptions& options, const double* scalars,
                  const double* scale, int64_t pieces, const int64_t* table,
                  const AdamWArenas<T>& arenas) {
  using A = Accumulator<T>;
  const GradScale grad = load_grad_scale(scale);
  if (grad.finite == 0.0) return;
  const AdamWFactors<A> factors = adamw_factors<A>(options, scalars, grad.factor);
  parallel_for(cpu, pieces, [&](int64_t i) {
    const ArenaPiece piece = piece_at(table, i);
    const A decay = piece.decays ? factors.decay : A{0};
    const int64_t shift = piece.shift;
#pragma omp simd
    for (int64_t j = piece.begin; j < piece.end; ++j) {
      A& w = arenas.master(j, shift);
      adamw_element(factors, decay, arenas.grads[j], w, arenas.m[j - shift], arenas.v[j - shift]);
      if constexpr (AdamWArenas<T>::kRounds) arenas.values[j] = static_cast<T>(w);
    }
  });
}

#define XT_ADAMW(T)                                                                         \
  template void adamw_update(const Cpu&, const AdamWOptions&, const double*, const double*, \
                             int64_t, const int64_t*, const AdamWArenas<T>&);
XT_ADAMW(double)
XT_ADAMW(float)
XT_ADAMW(BFloat16)
#undef XT_ADAMW

}  // namespace xtrain
