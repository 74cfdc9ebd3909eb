#include "ops/rope/rope.h"

#include <cmath>

#include "core/copy.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr RopePairing kPairings[] = {RopePairing::halves, RopePairing::adjacent};

// [1, T, 1, D], random.
Tensor heads(const Context& ctx, int64_t time, int64_t head_dim) {
  const RandomStream stream = random_stream(3, 0, 0);
  std::vector<float> values(time * head_dim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(0, i) - 0.5f;
  return from_host(ctx, values, {1, time, 1, head_dim});
}

}  // namespace

TEST_CASE("rope cases", "[ops]") {
  check_op_cases("rope");
}

TEST_CASE("rope turns the pairs of either pairing by the known angles", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<double>{1, 2, 3, 4}, {1, 1, 1, 4});
  const Tensor at = from_host(ctx, std::vector<int32_t>{2}, {1, 1});
  const RopeTable table = rope_table(ctx, 3, 4, 100.0, Dtype::f64);
  const double c0 = std::cos(2.0), s0 = std::sin(2.0);  // pair 0: angle 2
  const double c1 = std::cos(0.2), s1 = std::sin(0.2);  // pair 1: angle 2 / sqrt(100)
  const auto close = [](const std::vector<double>& got, const std::vector<double>& expected) {
    return relative_difference(got, expected) < tolerance(Dtype::f64);
  };
  CHECK(close(to_host<double>(ctx, rope(ctx, x, at, table, RopePairing::halves).value),
              {c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + s0, 4 * c1 + 2 * s1}));
  CHECK(close(to_host<double>(ctx, rope(ctx, x, at, table, RopePairing::adjacent).value),
              {c0 - 2 * s0, 2 * c0 + s0, 3 * c1 - 4 * s1, 4 * c1 + 3 * s1}));
}

TEST_CASE("rope leaves position 0 exactly as it is", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = heads(ctx, 3, 64);
  const RopeTable table = rope_table(ctx, 10, 64, 10000.0, Dtype::f32);
  for (RopePairing pairing : kPairings) {
    const Var y = rope(ctx, x, zeros(ctx, {1, 3}, Dtype::i32), table, pairing);
    CHECK(to_host<float>(ctx, y.value) == to_host<float>(ctx, x));
  }
}

TEST_CASE("rope keeps the norm of every pair, far out too", "[ops]") {
  const Context ctx = cpu_context(1);
  const int64_t half = 32;
  const Tensor x = heads(ctx, 2, 2 * half);
  const Tensor at = from_host(ctx, std::vector<int32_t>{7, 9999}, {1, 2});
  const RopeTable table = rope_table(ctx, 10000, 2 * half, 10000.0, Dtype::f32);
  const Var y = rope(ctx, x, at, table, RopePairing::halves);
  const std::vector<float> before = to_host<float>(ctx, x), after = to_host<float>(ctx, y.value);
  for (int64_t t : {0, 1}) {
    for (int64_t i = t * 2 * half; i < t * 2 * half + half; ++i) {
      const double expected = std::hypot(before[i], before[i + half]);
      const double got = std::hypot(after[i], after[i + half]);
      CHECK(std::abs(got - expected) <= tolerance(Dtype::f32) * expected);
    }
  }
}

// Angles formed in f32 would be off by 131071 * 2^-24 = 8e-3 here.
TEST_CASE("the rope table is right at position 131071 with base 1e6", "[ops]") {
  const Context ctx = cpu_context(1);
  const int64_t last = 131071, half = 8;
  const RopeTable table = rope_table(ctx, last + 1, 2 * half, 1e6, Dtype::bf16);
  REQUIRE(table.cos.dtype() == Dtype::f32);
  const std::vector<float> cos = to_host<float>(ctx, table.cos.slice(0, last, 1));
  const std::vector<float> sin = to_host<float>(ctx, table.sin.slice(0, last, 1));
  for (int64_t i = 0; i < half; ++i) {
    const long double angle = last * std::pow(1e6L, -2.0L * i / (2 * half));
    CHECK(std::abs(cos[i] - std::cos(angle)) < 1e-6L);
    CHECK(std::abs(sin[i] - std::sin(angle)) < 1e-6L);
  }
  // cos and sin of 131071 radians, computed with 30 digits.
  CHECK(std::abs(cos[0] - -0.817983499387949) < 1e-6);
  CHECK(std::abs(sin[0] - -0.575241683754789) < 1e-6);
}

TEST_CASE("rope refuses positions outside the table and what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = heads(ctx, 3, 4);
  const RopeTable table = rope_table(ctx, 64, 4, 10000.0, Dtype::f32);
  const auto at = [&](std::vector<int32_t> positions) {
    return rope(ctx, x, from_host(ctx, positions, {1, 3}), table, RopePairing::halves);
  };
  CHECK_NOTHROW(at({0, 1, 63}));
  CHECK_THROWS_WITH(at({0, 1, 64}), "rope: positions must lie in [0, 64); got 64 at position 2");
  CHECK_THROWS_WITH(at({0, -1, 2}), "rope: positions must lie in [0, 64); got -1 at position 1");
  const Tensor short_positions = zeros(ctx, {1, 2}, Dtype::i32);
  CHECK_THROWS_WITH(rope(ctx, x, short_positions, table, RopePairing::halves),
                    "rope: positions must be i32 of shape (1, 3); got i32 (1, 2)");
  const RopeTable wide = rope_table(ctx, 64, 8, 10000.0, Dtype::f32);
  const Tensor zero = zeros(ctx, {1, 3}, Dtype::i32);
  CHECK_THROWS_WITH(rope(ctx, x, zero, wide, RopePairing::halves),
                    "rope: the table must be made for the heads' size 4; got one for 8");
  CHECK_THROWS_WITH(rope_table(ctx, 64, 5, 10000.0, Dtype::f32),
                    "rope: head_dim must be even and positive; got 5");
}
