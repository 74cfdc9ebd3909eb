#include "ops/elementary/elementary.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

double reference(Elementary kind, double x) {
  switch (kind) {
    case Elementary::exp:
      return std::exp(x);
    case Elementary::log:
      return std::log(x);
    case Elementary::tanh:
      return std::tanh(x);
    case Elementary::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Elementary::rsqrt:
      return 1.0 / std::sqrt(x);
  }
  return 0.0;
}

std::vector<float> values_of(const Context& ctx, Elementary kind, const std::vector<float>& x) {
  const Tensor input = from_host(ctx, x, {static_cast<int64_t>(x.size())});
  return to_host<float>(ctx, elementary(ctx, input, kind).value);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("elementary cases", "[ops]") {
  check_op_cases("elementary");
}

TEST_CASE("elementary functions in f32 are right to a few units in the last place", "[ops]") {
  const Context ctx = cpu_context(2);
  for (Elementary kind : {Elementary::exp, Elementary::log, Elementary::tanh, Elementary::sigmoid,
                          Elementary::rsqrt}) {
    const bool positive_only = kind == Elementary::log || kind == Elementary::rsqrt;
    std::vector<float> x;
    for (int i = -87000; i <= 87000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
    for (int i = -120; i <= 0; ++i) x.push_back(std::ldexp(1.37f, i));
    if (positive_only) std::erase_if(x, [](float v) { return v <= 0.0f; });
    const std::vector<float> y = values_of(ctx, kind, x);
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = reference(kind, x[i]);
      // Near x = 1 the logarithm is 0 and the rounding of x is all there is.
      if (expected == 0.0) continue;
      worst = std::max(worst, std::abs(y[i] - expected) / std::abs(expected));
    }
    INFO(name_of(kind));
    CHECK(worst <= tolerance(Dtype::f32));
  }
}

TEST_CASE("elementary functions have the known values and limits", "[ops]") {
  const Context ctx = cpu_context(1);
  using Floats = std::vector<float>;
  CHECK(values_of(ctx, Elementary::exp, {0.0f, -1000.0f, 1000.0f, -kInfinity}) ==
        Floats{1.0f, 0.0f, kInfinity, 0.0f});
  // The last float with a finite exponential, and the first without.
  CHECK(std::isfinite(values_of(ctx, Elementary::exp, {88.7228317f})[0]));
  CHECK(values_of(ctx, Elementary::exp, {88.7228394f}) == Floats{kInfinity});
  CHECK(values_of(ctx, Elementary::sigmoid, {-88.7228394f}) == Floats{0.0f});
  CHECK(values_of(ctx, Elementary::tanh, {44.3614197f}) == Floats{1.0f});
  CHECK(values_of(ctx, Elementary::log, {1.0f, 0.0f, kInfinity}) ==
        Floats{0.0f, -kInfinity, kInfinity});
  CHECK(values_of(ctx, Elementary::tanh, {0.0f, -1000.0f, kInfinity}) == Floats{0.0f, -1.0f, 1.0f});
  CHECK(values_of(ctx, Elementary::sigmoid, {0.0f, -1000.0f, 1000.0f}) == Floats{0.5f, 0.0f, 1.0f});
  CHECK(values_of(ctx, Elementary::rsqrt, {4.0f, 0.0f, kInfinity}) ==
        Floats{0.5f, kInfinity, 0.0f});
  CHECK(std::isnan(values_of(ctx, Elementary::log, {-1.0f})[0]));
  CHECK(std::isnan(values_of(ctx, Elementary::rsqrt, {-1.0f})[0]));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Elementary kind : {Elementary::exp, Elementary::log, Elementary::tanh, Elementary::sigmoid,
                          Elementary::rsqrt}) {
    INFO(name_of(kind));
    CHECK(std::isnan(values_of(ctx, kind, {nan})[0]));
  }
}

TEST_CASE("elementary functions keep one tensor", "[ops]") {
  const Context ctx = cpu_context(1);
  for (Elementary kind : {Elementary::exp, Elementary::log, Elementary::tanh, Elementary::sigmoid,
                          Elementary::rsqrt}) {
    Tape tape(ctx);
    const Tensor x = from_host(ctx, std::vector<float>(16, 1.0f), {16});
    const Var y = elementary(ctx, tape.leaf(x), kind);
    INFO(name_of(kind));
    CHECK(tape.saved_bytes() == 64);
    CHECK(tape.node_names() == std::vector<std::string>{name_of(kind)});
  }
}

TEST_CASE("a value changed after sigmoid kept it is an error that names sigmoid", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto run = [&](bool through_view) {
    Tape tape(ctx);
    const Var a = tape.leaf(from_host(ctx, std::vector<double>{1, 2, 3}, {3}));
    Var b = sigmoid(ctx, a);
    if (through_view) {
      b.value.slice(0, 1, 1).mutable_data<double>()[0] = 2.0;
    } else {
      b.value.mutable_data<double>()[1] = 2.0;
    }
    const Tensor ones = from_host(ctx, std::vector<double>{1, 1, 1}, {3});
    tape.backward(std::span(&b, 1), std::span(&ones, 1));
  };
  for (bool through_view : {false, true}) {
    CHECK_THROWS_WITH(run(through_view),
                      "backward: a tensor of shape (3) kept by sigmoid was changed in place since; "
                      "write to a copy instead");
  }
}
