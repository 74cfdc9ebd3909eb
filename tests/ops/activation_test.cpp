#include "ops/activation/activation.h"

#include <cmath>

#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("activation cases", "[ops]") {
  check_op_cases("activation");
}

TEST_CASE("activations have the known values", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<double>{-1.0, 0.0, 2.0}, {3});
  const auto values = [&](Activation kind) {
    return to_host<double>(ctx, activation(ctx, x, kind).value);
  };
  CHECK(values(Activation::relu) == std::vector<double>{0.0, 0.0, 2.0});
  // x / (1 + exp(-x)); x Phi(x); the tanh form: computed with 20 digits.
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-14; };
  CHECK(close(values(Activation::silu)[0], -0.26894142136999512));
  CHECK(close(values(Activation::silu)[2], 1.7615941559557649));
  CHECK(close(values(Activation::gelu)[0], -0.15865525393145705));
  CHECK(close(values(Activation::gelu)[2], 1.9544997361036416));
  CHECK(close(values(Activation::gelu_tanh)[0], -0.15880800939172324));
  CHECK(close(values(Activation::gelu_tanh)[2], 1.9545976940877752));
}

TEST_CASE("activations pass NaN on", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<float>{std::nanf("")}, {1});
  for (Activation kind :
       {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    INFO(name_of(kind));
    CHECK(std::isnan(to_host<float>(ctx, activation(ctx, x, kind).value)[0]));
  }
}

TEST_CASE("activations of huge inputs stay finite", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<float>{-1e4f, 1e4f}, {2});
  for (Activation kind :
       {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    INFO(name_of(kind));
    Tape tape(ctx);
    const Var leaf = tape.leaf(x);
    const Var y = activation(ctx, leaf, kind);
    const std::vector<float> values = to_host<float>(ctx, y.value);
    CHECK(std::abs(values[0]) == 0.0f);
    CHECK(values[1] == 1e4f);
    const Tensor dy = from_host(ctx, std::vector<float>{1.0f, 1.0f}, {2});
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    CHECK(to_host<float>(ctx, tape.grad(leaf)) == std::vector<float>{0.0f, 1.0f});
  }
}
