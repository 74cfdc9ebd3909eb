#include "train/adamw/adamw.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "core/error.h"
#include "train/adamw/adamw_kernels.h"

namespace xtrain {

AdamW::AdamW(const Context& ctx, ParameterSet& parameters, const AdamWOptions& options,
             ArenaRange owned)
    : parameters_(parameters),
      options_(options),
      owned_(owned),
      masters_(cast(ctx, parameters.values(), accumulator_dtype(parameters.values().dtype()))),
      first_moments_(zeros(ctx, masters_.shape(), masters_.dtype())),
      second_moments_(zeros(ctx, masters_.shape(), masters_.dtype())) {}

void AdamW::initialize(const Context& ctx, uint64_t seed) {
  for (const Parameter& p : parameters_.list()) copy(ctx, initial_value(ctx, p, seed), master(p));
  masters_changed(ctx);
}

void AdamW::step(const Context& ctx, int64_t step, double learning_rate, double grad_factor) {
  check(step >= 1, "adamw: steps count from 1; got ", step);
  const double t = static_cast<double>(step);
  AdamWFactors factors{options_.beta1,
                       options_.beta2,
                       options_.eps,
                       0.0,
                       learning_rate / (1.0 - std::pow(options_.beta1, t)),
                       1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t)),
                       grad_factor};
  dispatch(ctx, parameters_.values(), "adamw", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    T* values = Tensor(parameters_.values()).template mutable_data<T>();
    A* w = masters_.template mutable_data<A>();
    A* m = first_moments_.template mutable_data<A>();
    A* v = second_moments_.template mutable_data<A>();
    const A* grads = parameters_.grads().template data<A>();
    for (const Parameter& p : parameters_.list()) {
      if (!p.trainable) continue;
      const int64_t begin = std::max(p.offset, owned_.begin);
      const int64_t end = std::min(p.offset + numel_of(p.shape), owned_.end);
      if (begin >= end) continue;
      const bool decays = p.kind != ParameterKind::vector;
      factors.decay = decays ? learning_rate * options_.weight_decay : 0.0;
      adamw_update(device, factors, end - begin, grads + begin, w + begin, m + begin, v + begin,
                   values + begin);
    }
  });
}

Tensor AdamW::master(const Parameter& p) const {
  return parameters_.slice_of(masters_, p);
}
Tensor AdamW::first_moment(const Parameter& p) const {
  return parameters_.slice_of(first_moments_, p);
}
Tensor AdamW::second_moment(const Parameter& p) const {
  return parameters_.slice_of(second_moments_, p);
}

void AdamW::masters_changed(const Context& ctx) {
  if (!masters_.shares_storage(parameters_.values())) copy(ctx, masters_, parameters_.values());
}

}  // namespace xtrain
