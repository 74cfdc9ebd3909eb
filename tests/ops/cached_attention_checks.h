#pragma once
// What a further token over a cache must give on every device.

#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "ops/cached_attention/cached_attention.h"
#include "support/op_tests.h"

namespace xtrain {

struct CachedExample {
  int64_t heads, kv_heads, head_dim, capacity;
  bool normed, turned;
  RopePairing pairing = RopePairing::halves;
  double bound = 1.0;  // of the queries' and keys' elements
};

// The lengths of the rows, of which the last has ended and gets no token.
inline std::vector<int32_t> held_lengths(int64_t capacity) {
  const auto last = static_cast<int32_t>(capacity - 1);
  return {0, 1, last / 2, last - 1, last, 0};
}

struct CachedResult {
  std::vector<double> o, keys, values;
};

using CachedFunction = Tensor (*)(const Context&, const Tensor&, const Tensor&, const Tensor&,
                                  const QkNormRope&, const RopeTable*, const CachedTokens&);

// The same numbers in every dtype, rounded to `rounded` first. What the caches hold behind a row's
// end is NaN: nothing may read it.
inline CachedResult run_cached(const Context& ctx, const CachedExample& e, CachedFunction function,
                               Dtype dtype, Dtype rounded) {
  const std::vector<int32_t> lengths = held_lengths(e.capacity);
  const auto B = static_cast<int64_t>(lengths.size());
  uint64_t site = 0;
  const auto numbers = [&](int64_t count, double bound) {
    const RandomStream stream = random_stream(21, 0, site++);
    std::vector<double> x(count);
    for (size_t i = 0; i < x.size(); ++i) x[i] = bound * (2.0 * stream.uniform(0, i) - 1.0);
    return x;
  };
  const auto tensor = [&](const std::vector<double>& x, const Shape& shape) {
    return cast(ctx, cast(ctx, from_host(ctx, x, shape), rounded), dtype);
  };
  const int64_t width = (e.heads + 2 * e.kv_heads) * e.head_dim;
  const Tensor packed = tensor(numbers(B * width, e.bound), {B, 1, width});
  Tensor q_weight, k_weight;
  if (e.normed) {
    q_weight = tensor(numbers(e.head_dim, 2.0), {e.head_dim});
    k_weight = tensor(numbers(e.head_dim, 2.0), {e.head_dim});
  }
  const Shape tables{B, e.capacity, e.kv_heads, e.head_dim};
  const auto table = [&](double bound) {
    std::vector<double> x = numbers(numel_of(tables), bound);
    const int64_t row = e.kv_heads * e.head_dim;
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t i = lengths[b] * row; i < e.capacity * row; ++i) {
        x[b * e.capacity * row + i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    return tensor(x, tables);
  };
  std::vector<int32_t> added(B, 1), ends = lengths;
  added.back() = 0;
  for (int64_t b = 0; b < B; ++b) ends[b] += added[b];
  const CachedTokens cache{table(e.bound), table(1.0), from_host(ctx, lengths, {B}),
                           from_host(ctx, added, {B}), from_host(ctx, ends, {B})};
  const RopeTable rope = rope_table(ctx, e.capacity, e.head_dim, 1e4, dtype);
  const QkNormRope options{e.heads, e.kv_heads, e.head_dim, 1e-6, e.pairing};
  const Tensor o =
      function(ctx, packed, q_weight, k_weight, options, e.turned ? &rope : nullptr, cache);
  const auto doubles = [&](const Tensor& x) {
    return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
  };
  return {doubles(o), doubles(cache.keys), doubles(cache.values)};
}

}  // namespace xtrain
