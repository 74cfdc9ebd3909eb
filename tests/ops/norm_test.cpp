#include "ops/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "ops/activation/activation.h"
#include "support/catch.h"
#include "support/counting_allocator.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

// Forward and backward of layer_norm in f32 without weight and bias; upstream gradient 0, 1, 2, ...
struct PlainNorm {
  std::vector<float> y, dx;

  explicit PlainNorm(const std::vector<float>& row) {
    const Context ctx = cpu_context(1);
    const Shape shape{1, static_cast<int64_t>(row.size())};
    std::vector<float> upstream(row.size());
    for (size_t i = 0; i < row.size(); ++i) upstream[i] = static_cast<float>(i);
    Tape tape(ctx);
    const Var x = tape.leaf(from_host(ctx, row, shape));
    const Var normed = layer_norm(ctx, x, Var(), Var(), 1e-5);
    const Tensor dy = from_host(ctx, upstream, shape);
    tape.backward(std::span(&normed, 1), std::span(&dy, 1));
    y = to_host<float>(ctx, normed.value);
    dx = to_host<float>(ctx, tape.grad(x));
  }
};

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

TEST_CASE("norm cases", "[ops]") {
  check_op_cases("norm");
}

TEST_CASE("norms have the known values", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto tensor = [&](const std::vector<double>& v) {
    return Var(from_host(ctx, v, {static_cast<int64_t>(v.size())}));
  };
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-12; };
  // Mean 2, variance 2/3; with eps 1/3 the divisor is 1. Mean square 14/3; with eps 13/3 it is 3.
  const std::vector<double> layer = to_host<double>(
      ctx,
      layer_norm(ctx, tensor({1, 2, 3}), tensor({2, 3, 4}), tensor({10, 20, 30}), 1.0 / 3).value);
  CHECK(close(layer[0], 8.0));
  CHECK(close(layer[1], 20.0));
  CHECK(close(layer[2], 34.0));
  const std::vector<double> rms =
      to_host<double>(ctx, rms_norm(ctx, tensor({1, 2, 3}), tensor({3, 6, 9}), 13.0 / 3).value);
  CHECK(close(rms[0], 1.0));
  CHECK(close(rms[1], 4.0));
  CHECK(close(rms[2], 9.0));
}

TEST_CASE("layer norm of values with a large mean keeps its digits", "[ops]") {
  const PlainNorm large({40000.0f, 40001.0f, 40002.0f, 40003.0f});
  const double expected[] = {-1.341635, -0.447212, 0.447212, 1.341635};
  for (int i = 0; i < 4; ++i) {
    CHECK(std::abs(large.y[i] - expected[i]) < 1e-3);
    // dy is the row up to its mean, so that all of it but eps's share lies along x_hat.
    CHECK(std::abs(large.dx[i]) < 1e-3);
  }

  std::vector<float> close_values;
  for (int i = 0; i < 16; ++i) close_values.push_back(1000.0f + static_cast<float>(i) * 1e-3f);
  const PlainNorm close(close_values);
  CHECK(std::abs(close.y[0] + 1.3415) < 2e-2);
  CHECK(std::abs(close.y[15] - 1.3415) < 2e-2);
  CHECK(all_finite(close.dx));
}

TEST_CASE("layer norm of a constant row is zero and has a finite gradient", "[ops]") {
  for (float value : {1234.0f, 0.1f, -3e7f, 0.0f}) {
    INFO(value);
    const PlainNorm constant(std::vector<float>(256, value));
    CHECK(constant.y == std::vector<float>(256, 0.0f));
    // r (dy - mean(dy)) with r = 1 / sqrt(eps).
    for (int i : {0, 100, 255}) {
      const double expected = (i - 127.5) / std::sqrt(1e-5);
      CHECK(std::abs(constant.dx[i] - expected) <= std::abs(expected) * tolerance(Dtype::f32, 256));
    }
  }
}

TEST_CASE("rms norm of a zero row is zero and has a finite gradient", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(zeros(ctx, {1, 4}, Dtype::f32));
  const Var y = rms_norm(ctx, x, Var(), 1e-6);
  const Tensor dy = from_host(ctx, std::vector<float>{1, 2, 3, 4}, {1, 4});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>(4, 0.0f));
  const std::vector<float> dx = to_host<float>(ctx, tape.grad(x));
  for (int i = 0; i < 4; ++i) CHECK(std::abs(dx[i] - 1000.0f * (i + 1)) < 1e-2f);
}

TEST_CASE("norms of no rows have no rows and a zero weight gradient", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(empty(ctx, {0, 5}, Dtype::f32));
  const Var weight = tape.leaf(from_host(ctx, std::vector<float>(5, 1.0f), {5}));
  const Var y = rms_norm(ctx, x, weight, 1e-6);
  CHECK(y.shape() == Shape{0, 5});
  const Tensor dy = empty(ctx, {0, 5}, Dtype::f32);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(tape.grad(x).shape() == Shape{0, 5});
  CHECK(to_host<float>(ctx, tape.grad(weight)) == std::vector<float>(5, 0.0f));
}

TEST_CASE("weight gradients add to what a parameter holds, in f32 for bf16", "[ops]") {
  const Context ctx = cpu_context(1);
  Parameter weight;
  weight.name = "weight";
  weight.shape = {2};
  weight.value = cast(ctx, from_host(ctx, std::vector<float>{1, 1}, {2}), Dtype::bf16);
  weight.grad = from_host(ctx, std::vector<float>{100, 200}, {2});
  weight.has_grad = true;
  Tape tape(ctx);
  const Tensor x = cast(ctx, from_host(ctx, std::vector<float>{1, -1, 1, -1}, {2, 2}), Dtype::bf16);
  const Var y = layer_norm(ctx, x, tape.parameter(weight), Var(), 1e-9);
  const Tensor dy = cast(ctx, from_host(ctx, std::vector<float>{1, 2, 3, 4}, {2, 2}), Dtype::bf16);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(weight.grad.dtype() == Dtype::f32);
  CHECK(to_host<float>(ctx, weight.grad) == std::vector<float>{104, 194});
}

TEST_CASE("add_norm keeps the residual gradient in one buffer", "[ops]") {
  Context ctx = cpu_context(1);
  const auto allocator = std::make_shared<CountingAllocator>();
  ctx.allocator = allocator;
  const Tensor ones = from_host(ctx, std::vector<float>(64, 1.0f), {4, 16});
  const int layers = 10;
  Tape tape(ctx);
  Var sum = tape.leaf(ones), normed = tape.leaf(ones);
  for (int i = 0; i < layers; ++i) {
    const AddNorm r = add_norm(ctx, sum, relu(ctx, normed), Var(), Var(), NormKind::rms, 1e-5);
    sum = r.sum;
    normed = r.normed;
  }
  const Var outputs[] = {sum, normed};
  const Tensor gradients[] = {ones, ones};
  const int64_t before = allocator->allocations();
  tape.backward(outputs, gradients);
  // One for the sum's gradient, since the caller holds the one given, and one a relu, since the
  // gradient it gets is the sum's too.
  CHECK(allocator->allocations() - before == 1 + layers);
}

TEST_CASE("add_norm passes on whichever gradient there is", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor value = from_host(ctx, std::vector<double>{1, 2, 4, 3}, {2, 2});
  const Tensor upstream = from_host(ctx, std::vector<double>{1, 0, 2, 3}, {2, 2});
  const auto gradient_of = [&](int output, bool composed) {
    Tape tape(ctx);
    const Var x = tape.leaf(value), branch = tape.leaf(value);
    const AddNorm r = (composed ? add_norm_composed : add_norm)(ctx, x, branch, Var(), Var(),
                                                                NormKind::rms, 1e-5);
    const Var y = output == 0 ? r.sum : r.normed;
    tape.backward(std::span(&y, 1), std::span(&upstream, 1));
    const std::vector<double> dx = to_host<double>(ctx, tape.grad(x));
    CHECK(to_host<double>(ctx, tape.grad(branch)) == dx);
    return dx;
  };
  CHECK(gradient_of(0, false) == to_host<double>(ctx, upstream));
  CHECK(gradient_of(1, false) == gradient_of(1, true));
}

TEST_CASE("norms refuse what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var x = zeros(ctx, {2, 4}, Dtype::f32), w = zeros(ctx, {4}, Dtype::f32);
  const Var short_w = zeros(ctx, {3}, Dtype::f32), wide_w = zeros(ctx, {4}, Dtype::f64);
  CHECK_THROWS_WITH(layer_norm(ctx, x, short_w, Var(), 1e-5),
                    "layer_norm: weight must have shape (4), the width of x (2, 4); got (3)");
  CHECK_THROWS_WITH(layer_norm(ctx, x, w, wide_w, 1e-5),
                    "layer_norm: bias must have the dtype of x, f32; got f64");
  CHECK_THROWS_WITH(norm(ctx, x, w, w, NormKind::rms, 1e-5),
                    "rms_norm: has no bias; got one of shape (4)");
  CHECK_THROWS_WITH(rms_norm(ctx, x, w, 0.0), "rms_norm: eps must be positive; got 0");
  CHECK_THROWS_WITH(
      add_norm(ctx, x, w, w, Var(), NormKind::rms, 1e-5),
      "add_norm: x and branch must have one shape and dtype; got (2, 4) f32 and (4) f32");
}
