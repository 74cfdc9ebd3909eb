#include "train/adamw/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "core/parallel.h"
#include "train/adamw/adamw_kernels.h"

namespace xtrain {

namespace {

// Cuts what is to be updated into pieces whose borders are multiples of kElementBlock in the
// arenas, so that devices can walk through them in aligned steps.
Tensor make_pieces(const Context& ctx, const ParameterSet& parameters, ArenaRange owned) {
  std::vector<int64_t> rows;
  for (const Parameter& p : parameters.list()) {
    if (!p.trainable) continue;
    const int64_t end = std::min(p.offset + numel_of(p.shape), owned.end);
    const bool decays = p.kind != ParameterKind::vector;
    for (int64_t begin = std::max(p.offset, owned.begin); begin < end;) {
      const int64_t border = std::min(end, (begin / kElementBlock + 1) * kElementBlock);
      rows.insert(rows.end(), {begin, border, decays});
      begin = border;
    }
  }
  const int64_t pieces = static_cast<int64_t>(rows.size()) / kArenaPieceFields;
  return from_host(ctx, rows, {pieces, kArenaPieceFields});
}

}  // namespace

AdamW::AdamW(const Context& ctx, ParameterSet& parameters, const AdamWOptions& options,
             ArenaRange owned)
    : parameters_(parameters),
      options_(options),
      masters_(cast(ctx, parameters.values(), accumulator_dtype(parameters.values().dtype()))),
      first_moments_(zeros(ctx, masters_.shape(), masters_.dtype())),
      second_moments_(zeros(ctx, masters_.shape(), masters_.dtype())),
      pieces_(make_pieces(ctx, parameters, owned)) {}

void AdamW::initialize(const Context& ctx, uint64_t seed) {
  for (const Parameter& p : parameters_.list()) copy(ctx, initial_value(ctx, p, seed), master(p));
  masters_changed(ctx);
}

std::array<double, 3> AdamW::step_scalars(int64_t step, double learning_rate) const {
  check(step >= 1, "adamw: steps count from 1; got ", step);
  const double t = static_cast<double>(step);
  return {learning_rate, 1.0 / (1.0 - std::pow(options_.beta1, t)),
          1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t))};
}

void AdamW::step(const Context& ctx, const Tensor& scalars, const Tensor& scale) {
  check(scalars.shape() == Shape{3} && scale.shape() == Shape{kGradScaleFields},
        "adamw: scalars must be [3] and scale [4]; got ", scalars.shape(), " and ", scale.shape());
  check(scalars.device() == ctx.device && scale.device() == ctx.device,
        "adamw: scalars and scale must lie on the context's device ", ctx.device, "; got ",
        scalars.device(), " and ", scale.device());
  dispatch(ctx, parameters_.values(), "adamw", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    AdamWArenas<T> arenas;
    arenas.grads = parameters_.grads().template data<A>();
    arenas.w = masters_.template mutable_data<A>();
    arenas.m = first_moments_.template mutable_data<A>();
    arenas.v = second_moments_.template mutable_data<A>();
    arenas.values = Tensor(parameters_.values()).template mutable_data<T>();
    adamw_update(device, options_, scalars.data<double>(), scale.data<double>(), pieces_.size(0),
                 pieces_.data<int64_t>(), arenas);
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
