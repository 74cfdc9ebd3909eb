#include <cmath>

#include "core/copy.h"
#include "ops/rope/rope.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

// [1, time, heads, head_dim], random in [-1, 1].
Tensor heads(const Context& ctx, const Shape& shape) {
  const RandomStream stream = random_stream(3, 0, 0);
  std::vector<float> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0f * stream.uniform(0, i) - 1.0f;
  return from_host(ctx, values, shape);
}

}  // namespace

TEST_CASE("the GPU's rope table is right at position 131071 with base 1e6", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t last = 131071, half = 64;
  const RopeTable table = rope_table(ctx, last + 1, 2 * half, 1e6, Dtype::bf16);
  const auto cos = to_host<float>(ctx, contiguous(ctx, table.cos.slice(0, last, 1)));
  const auto sin = to_host<float>(ctx, contiguous(ctx, table.sin.slice(0, last, 1)));
  for (int64_t i = 0; i < half; ++i) {
    const long double angle = last * std::pow(1e6L, -2.0L * i / (2 * half));
    CHECK(std::abs(cos[i] - std::cos(angle)) < 1e-6L);
    CHECK(std::abs(sin[i] - std::sin(angle)) < 1e-6L);
  }
}

TEST_CASE("GPU and CPU agree on rope tables to the rounding of f32", "[cuda]") {
  const Context cpu = cpu_context(1);
  const auto tables = [](const Context& ctx) {
    const RopeTable table = rope_table(ctx, 5000, 128, 10000.0, Dtype::f32);
    return std::pair(as_doubles(ctx, table.cos), as_doubles(ctx, table.sin));
  };
  const auto [cos, sin] = tables(test_cuda_context());
  const auto [cpu_cos, cpu_sin] = tables(cpu);
  CHECK(relative_difference(cos, cpu_cos) <= 0.5 * epsilon_of(Dtype::f32));
  CHECK(relative_difference(sin, cpu_sin) <= 0.5 * epsilon_of(Dtype::f32));
}

TEST_CASE("rope on the GPU leaves position 0 as it is and keeps every pair's norm", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t time = 3, half = 4, last = 131071;
  const Tensor x = heads(ctx, {1, time, 2, 2 * half});
  const Tensor at = from_host(ctx, std::vector<int32_t>{0, 7, last}, {1, time});
  const RopeTable table = rope_table(ctx, last + 1, 2 * half, 1e6, Dtype::f32);
  const Tensor y = rope(ctx, x, at, table, RopePairing::halves).value;
  const std::vector<float> before = to_host<float>(ctx, x), after = to_host<float>(ctx, y);
  const int64_t token = 2 * 2 * half;
  CHECK(std::equal(before.begin(), before.begin() + token, after.begin()));
  for (int64_t row = 0; row < time * 2; ++row) {
    for (int64_t i = row * 2 * half; i < row * 2 * half + half; ++i) {
      const double expected = std::hypot(before[i], before[i + half]);
      CHECK(std::abs(std::hypot(after[i], after[i + half]) - expected) <=
            tolerance(Dtype::f32) * expected);
    }
  }
}

// 6e-8 is half a unit in the last place of values between 1 and 2, the largest a turned pair can
// be.
TEST_CASE("rope on the GPU is right to the rounding of f32", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Context cpu = cpu_context(1);
  const auto turned = [](const Context& device, Dtype dtype) {
    const Tensor x = cast(device, heads(device, {1, 4, 2, 8}), dtype);
    const Tensor at = from_host(device, std::vector<int32_t>{0, 1, 2, 3}, {1, 4});
    const RopeTable table = rope_table(device, 4, 8, 10000.0, dtype);
    return as_doubles(device, rope(device, x, at, table, RopePairing::halves).value);
  };
  const std::vector<double> got = turned(ctx, Dtype::f32), exact = turned(cpu, Dtype::f64);
  double error = 0.0;
  for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::abs(got[i] - exact[i]));
  CHECK(error <= epsilon_of(Dtype::f32));
}

TEST_CASE("rope on the GPU reports a position outside the table and does not follow it", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Tensor x = heads(ctx, {1, 2, 1, 8});
  const RopeTable table = rope_table(ctx, 4, 8, 10000.0, Dtype::f32);
  const Tensor at = from_host(ctx, std::vector<int32_t>{1, 1 << 30}, {1, 2});
  rope(ctx, x, at, table, RopePairing::halves);
  CHECK_THROWS_WITH(ctx.queue->synchronize(),
                    "rope: positions must lie in [0, 4); got 1073741824 at position 1");
}
