#include <cmath>
#include <limits>

#include "core/copy.h"
#include "ops/activation/activation.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

constexpr Activation kKinds[] = {Activation::relu, Activation::silu, Activation::gelu,
                                 Activation::gelu_tanh};

// Uniform in [-1, 1].
std::vector<float> uniform_values(int64_t count) {
  const RandomStream stream = random_stream(31, 0, 0);
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = 2.0f * stream.uniform(0, i) - 1.0f;
  return values;
}

}  // namespace

TEST_CASE("f32 activations on the GPU are right to one unit in the last place", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Context cpu = cpu_context(1);
  const std::vector<float> x = uniform_values(10000);
  const Tensor exact_x = cast(cpu, from_host(cpu, x, {10000}), Dtype::f64);
  for (Activation kind : kKinds) {
    INFO(name_of(kind));
    const auto got = to_host<float>(ctx, activation(ctx, from_host(ctx, x, {10000}), kind).value);
    const auto exact = to_host<double>(cpu, activation(cpu, exact_x, kind).value);
    double largest = 0.0, error = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(exact[i]));
      error = std::max(error, std::abs(got[i] - exact[i]));
    }
    const auto nearest = static_cast<float>(largest);
    CHECK(error <= std::nextafter(nearest, 2.0f) - nearest);
  }
}

TEST_CASE("activations on the GPU pass NaN on and keep huge inputs finite", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    // 16 elements, so that some are computed in packs.
    std::vector<double> values(19, -1e4);
    for (size_t i = 0; i < values.size(); i += 2) values[i] = 1e4;
    values[2] = values[17] = std::numeric_limits<double>::quiet_NaN();
    const Tensor x = cast(ctx, from_host(ctx, values, {19}), dtype);
    values = to_host<double>(ctx, cast(ctx, x, Dtype::f64));
    for (Activation kind : kKinds) {
      INFO(name_of(kind) << " in " << dtype);
      Tape tape(ctx);
      const Var leaf = tape.leaf(x, dtype), y = activation(ctx, leaf, kind);
      Tensor dy = empty_like(ctx, x);
      fill(ctx, dy, 1.0);
      tape.backward(std::span(&y, 1), std::span(&dy, 1));
      const auto got = to_host<double>(ctx, cast(ctx, y.value, Dtype::f64));
      const auto dx = to_host<double>(ctx, cast(ctx, tape.grad(leaf), Dtype::f64));
      for (size_t i = 0; i < values.size(); ++i) {
        INFO("element " << i);
        if (std::isnan(values[i])) {
          CHECK(std::isnan(got[i]));
        } else {
          CHECK(got[i] == std::max(values[i], 0.0));
          CHECK(dx[i] == (values[i] > 0.0 ? 1.0 : 0.0));
        }
      }
    }
  }
}
