#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/cached_attention_checks.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

// NaN is what the caches hold behind a row's end.
bool has_same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

// Two keys, neither normed nor turned: the softmax of two scores by hand.
TEST_CASE("cached attention sees the keys that are held and the token's own", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto tensor = [&](const std::vector<double>& x, const Shape& shape) {
    return from_host(ctx, x, shape);
  };
  const CachedTokens cache{tensor({1, 2, 9, 9}, {1, 2, 1, 2}), tensor({10, 20, 9, 9}, {1, 2, 1, 2}),
                           from_host(ctx, std::vector<int32_t>{1}, {1}),
                           from_host(ctx, std::vector<int32_t>{1}, {1}),
                           from_host(ctx, std::vector<int32_t>{2}, {1})};
  const Tensor packed = tensor({0.5, -1, 3, 4, 30, 50}, {1, 1, 6});  // q, k, v
  const Tensor o =
      cached_attention(ctx, packed, Tensor(), Tensor(), QkNormRope{1, 1, 2}, nullptr, cache);
  const double first = std::exp((0.5 * 1 - 1 * 2) / std::sqrt(2.0));
  const double second = std::exp((0.5 * 3 - 1 * 4) / std::sqrt(2.0));
  const std::vector<double> got = to_host<double>(ctx, o);
  REQUIRE(got.size() == 2);
  CHECK(std::abs(got[0] - (first * 10 + second * 30) / (first + second)) < 1e-12);
  CHECK(std::abs(got[1] - (first * 20 + second * 50) / (first + second)) < 1e-12);
  CHECK(to_host<double>(ctx, cache.keys) == std::vector<double>{1, 2, 3, 4});
  CHECK(to_host<double>(ctx, cache.values) == std::vector<double>{10, 20, 30, 50});
}

// Several tiles of keys, heads and rows of every width beside a vector's, on any number of threads.
TEST_CASE("cached attention on the CPU has the bits of the composed op", "[ops]") {
  std::vector<CachedExample> examples;
  for (const int64_t D : {2, 6, 8, 30, 32, 64, 128}) {
    for (const int64_t capacity : {3, 8, 21, 64, 65, 200}) {
      examples.push_back({2, 2, D, capacity, true, true});
      examples.push_back({6, 2, D, capacity, false, true, RopePairing::adjacent});
    }
    examples.push_back({3, 3, D, 70, true, false});
    examples.push_back({8, 1, D, 150, false, false, RopePairing::halves, 30.0});
  }
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const CachedExample& e : examples) {
      INFO(dtype << ", " << e.heads << " on " << e.kv_heads << " heads of " << e.head_dim
                 << ", capacity " << e.capacity << (e.normed ? ", normed" : "")
                 << (e.turned ? ", turned" : ""));
      const CachedResult composed =
          run_cached(cpu_context(1), e, cached_attention_composed, dtype, dtype);
      for (const int threads : {1, 3}) {
        const CachedResult got =
            run_cached(cpu_context(threads), e, cached_attention, dtype, dtype);
        CHECK(got.o == composed.o);
        CHECK(has_same_numbers(got.keys, composed.keys));
        CHECK(has_same_numbers(got.values, composed.values));
      }
    }
  }
}

TEST_CASE("cached attention refuses what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Shape tables{1, 2, 1, 2};
  const Tensor counts = zeros(ctx, {1}, Dtype::i32);
  const CachedTokens cache{zeros(ctx, tables, Dtype::f32), zeros(ctx, tables, Dtype::f32), counts,
                           counts, counts};
  const auto attend = [&](const Shape& packed, const QkNormRope& options, int64_t positions,
                          const CachedTokens& tokens) {
    const RopeTable rope = rope_table(ctx, positions, 2, 1e4, Dtype::f32);
    cached_attention(ctx, zeros(ctx, packed, Dtype::f32), Tensor(), Tensor(), options, &rope,
                     tokens);
  };
  CHECK_NOTHROW(attend({1, 1, 6}, {1, 1, 2}, 2, cache));
  CHECK_THROWS_WITH(attend({1, 2, 6}, {1, 1, 2}, 2, cache),
                    "cached_attention: packed must be (1, 1, 6), one token of each row of the "
                    "cache; got (1, 2, 6)");
  CHECK_THROWS_WITH(attend({1, 1, 8}, {3, 2, 2}, 2, cache),
                    "cached_attention: kv_heads must divide heads; got 2 and 3");
  CHECK_THROWS_WITH(attend({1, 1, 6}, {1, 1, 2}, 1, cache),
                    "cached_attention: the table must be f32 and serve heads of 2 elements at 2 "
                    "positions; got f32, 2 and 1");
  CHECK_THROWS_WITH(
      attend({1, 1, 9}, {1, 1, 3}, 2,
             CachedTokens{zeros(ctx, {1, 2, 1, 3}, Dtype::f32),
                          zeros(ctx, {1, 2, 1, 3}, Dtype::f32), counts, counts, counts}),
      "cached_attention: head_dim must be positive, and even where heads are normed "
      "or turned; got 3");
  CachedTokens other = cache;
  other.end = Tensor();
  CHECK_THROWS_WITH(attend({1, 1, 6}, {1, 1, 2}, 2, other),
                    "cached_attention: start, added and end must all be given");
  other.end = zeros(ctx, {2}, Dtype::i32);
  CHECK_THROWS_WITH(attend({1, 1, 6}, {1, 1, 2}, 2, other),
                    "cached_attention: start, added and end must be i32 of shape (1); got i32 (2)");
  other = cache;
  other.values = zeros(ctx, {1, 3, 1, 2}, Dtype::f32);
  CHECK_THROWS_WITH(attend({1, 1, 6}, {1, 1, 2}, 2, other),
                    "cached_attention: keys and values must be contiguous f32 of shape "
                    "(1, 2, 1, 2); got f32 (1, 2, 1, 2) and f32 (1, 3, 1, 2)");
}
