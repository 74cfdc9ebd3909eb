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

// Elements lie as far from a multiple of this among those owned as in the arenas, so that what is
// aligned there is aligned here.
constexpr int64_t kPlaceAlignment = kAllocationAlignment / 2;

Tensor slice_of(const Tensor& arena, ArenaRange range, int64_t shift = 0) {
  return arena.slice(0, range.begin - shift, range.end - range.begin);
}

}  // namespace

AdamW::AdamW(const Context& ctx, ParameterSet& parameters, const AdamWOptions& options,
             const ArenaRanges& owned)
    : parameters_(parameters), options_(options) {
  place(owned);
  const Tensor& values = parameters.values();
  const Dtype dtype = accumulator_dtype(values.dtype());
  first_moments_ = zeros(ctx, {owned_size_}, dtype);
  second_moments_ = zeros(ctx, {owned_size_}, dtype);
  if (values.dtype() != dtype) {
    masters_ = zeros(ctx, {owned_size_}, dtype);
    collect(ctx, values, masters_);
  }
  make_pieces(ctx);
}

// --- what is owned -------------------------------------------------------------------------------

void AdamW::place(const ArenaRanges& owned) {
  for (ArenaRange range : owned) {
    range.end = std::min(range.end, parameters_.arena_size());
    if (range.begin >= range.end) continue;
    check(owned_.empty() || range.begin >= owned_.back().range.end,
          "adamw: owned ranges must be in order and not overlap; got one that begins at ",
          range.begin);
    const int64_t shift = (range.begin - owned_size_) / kPlaceAlignment * kPlaceAlignment;
    owned_.push_back({.range = range, .shift = shift});
    owned_size_ = range.end - shift;
  }
}

bool AdamW::owns_all() const {
  return owned_.size() == 1 && owned_size_ == parameters_.arena_size();
}

// Cuts what is to be updated into pieces whose borders are multiples of kElementBlock in the
// arenas, so that devices can walk through them in aligned steps.
void AdamW::make_pieces(const Context& ctx) {
  std::vector<int64_t> rows;
  const auto pieces = [&] { return static_cast<int64_t>(rows.size()) / kArenaPieceFields; };
  for (Owned& owned : owned_) {
    owned.first_piece = pieces();
    for (const Parameter& p : parameters_.list()) {
      const bool decays = p.kind != ParameterKind::vector;
      const int64_t end = std::min(p.offset + numel_of(p.shape), owned.range.end);
      for (int64_t begin = std::max(p.offset, owned.range.begin); p.trainable && begin < end;) {
        const int64_t border = std::min(end, (begin / kElementBlock + 1) * kElementBlock);
        rows.insert(rows.end(), {begin, border, decays, owned.shift});
        begin = border;
      }
    }
    owned.pieces = pieces() - owned.first_piece;
  }
  pieces_ = from_host(ctx, rows, {pieces(), kArenaPieceFields});
}

// An arena with the owned elements in their places.
Tensor AdamW::spread(const Context& ctx, const Tensor& owned) const {
  if (owns_all()) return owned;
  const Tensor arena = zeros(ctx, parameters_.values().shape(), owned.dtype());
  for (const Owned& o : owned_) {
    copy(ctx, slice_of(owned, o.range, o.shift), slice_of(arena, o.range));
  }
  return arena;
}

void AdamW::collect(const Context& ctx, const Tensor& arena, Tensor owned) const {
  if (arena.shares_storage(owned)) return;
  for (const Owned& o : owned_) {
    copy(ctx, slice_of(arena, o.range), slice_of(owned, o.range, o.shift));
  }
}

// --- state ---------------------------------------------------------------------------------------

Tensor AdamW::masters(const Context& ctx) const {
  return masters_.defined() ? spread(ctx, masters_) : parameters_.values();
}

AdamWState AdamW::state(const Context& ctx) const {
  return {masters(ctx), spread(ctx, first_moments_), spread(ctx, second_moments_)};
}

void AdamW::set_state(const Context& ctx, const AdamWState& state) {
  set_masters(ctx, state.masters);
  collect(ctx, state.first_moments, first_moments_);
  collect(ctx, state.second_moments, second_moments_);
}

void AdamW::set_masters(const Context& ctx, const Tensor& masters) {
  if (!masters.shares_storage(parameters_.values())) copy(ctx, masters, parameters_.values());
  if (masters_.defined()) collect(ctx, masters, masters_);
}

void AdamW::initialize(const Context& ctx, uint64_t seed) {
  const Tensor fresh = masters(ctx);
  for (const Parameter& p : parameters_.list()) {
    copy(ctx, initial_value(ctx, p, seed), parameters_.slice_of(fresh, p));
  }
  set_masters(ctx, fresh);
}

// --- steps ---------------------------------------------------------------------------------------

std::array<double, 3> AdamW::step_scalars(int64_t step, double learning_rate) const {
  check(step >= 1, "adamw: steps count from 1; got ", step);
  const double t = static_cast<double>(step);
  return {learning_rate, 1.0 / (1.0 - std::pow(options_.beta1, t)),
          1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t))};
}

void AdamW::step(const Context& ctx, const Tensor& scalars, const Tensor& scale,
                 const std::function<void(ArenaRange)>& updated) {
  check(scalars.shape() == Shape{3} && scale.shape() == Shape{kGradScaleFields},
        "adamw: scalars must be [3] and scale [4]; got ", scalars.shape(), " and ", scale.shape());
  check(scalars.device() == ctx.device && scale.device() == ctx.device,
        "adamw: scalars and scale must lie on the context's device ", ctx.device, "; got ",
        scalars.device(), " and ", scale.device());
  dispatch(ctx, parameters_.values(), "adamw", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    AdamWArenas<T> arenas;
    arenas.values = Tensor(parameters_.values()).template mutable_data<T>();
    arenas.grads = parameters_.grads().template data<A>();
    if constexpr (std::is_same_v<T, A>) {
      arenas.masters = arenas.values;
    } else {
      arenas.masters = masters_.template mutable_data<A>();
    }
    arenas.m = first_moments_.template mutable_data<A>();
    arenas.v = second_moments_.template mutable_data<A>();
    for (auto owned = owned_.rbegin(); owned != owned_.rend(); ++owned) {
      const int64_t* table = pieces_.data<int64_t>() + owned->first_piece * kArenaPieceFields;
      if (owned->pieces > 0) {
        adamw_update(device, options_, scalars.data<double>(), scale.data<double>(), owned->pieces,
                     table, arenas);
      }
      if (updated) updated(owned->range);
    }
  });
}

}  // namespace xtrain
