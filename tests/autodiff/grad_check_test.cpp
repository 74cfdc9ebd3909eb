#include "autodiff/grad_check.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "support/catch.h"
#include "support/tape_nodes.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

// y = x^2 + 3x, with a gradient that is right or wrong on purpose.
enum class Fault { none, scaled, dropped_term, overwrites, not_a_number, infinite, silent };

class SquareNode final : public Node {
 public:
  SquareNode(const Tensor& x, Fault fault) : x_(*this, x), fault_(fault) {}
  const char* name() const override { return "square"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    if (fault_ == Fault::silent) return;
    const std::vector<double> x = to_host<double>(g.ctx(), *x_), d = to_host<double>(g.ctx(), dy);
    std::vector<double> dx(x.size());
    for (size_t i = 0; i < x.size(); ++i) dx[i] = d[i] * slope(x[i]);
    if (fault_ == Fault::not_a_number) dx.back() = std::numeric_limits<double>::quiet_NaN();
    if (fault_ == Fault::infinite) dx.back() = std::numeric_limits<double>::infinity();
    const Tensor result = from_host(g.ctx(), dx, dy.shape());
    g.write(0, [&](Tensor target, bool accumulate) {
      accumulate&& fault_ != Fault::overwrites ? add_into(g.ctx(), result, target)
                                               : copy(g.ctx(), result, target);
    });
  }

 private:
  double slope(double x) const {
    const double right = 2.0 * x + (fault_ == Fault::dropped_term ? 0.0 : 3.0);
    return fault_ == Fault::scaled ? 1.01 * right : right;
  }

  Saved x_;
  Fault fault_;
};

Var square(const Context& ctx, const Var& x, Fault fault) {
  const Tensor y = add(ctx, mul(ctx, x.value, x.value), scale(ctx, x.value, 3.0)).value;
  return record<SquareNode>({x}, y, x.value, fault);
}

// The worst error of y = square(x) + 5x, where x is used twice.
double error_with(Fault fault) {
  const Context ctx = cpu_context(1);
  const auto function = [&](Tape*, std::span<const Var> in) {
    const Var y = square(ctx, in[0], fault);
    return std::vector<Var>{add(ctx, y, scale(ctx, in[0], 5.0))};
  };
  const Tensor x = doubles(ctx, {0.5, -1.0, 2.0, 0.25, -0.75}, {5});
  return grad_check(ctx, function, std::span(&x, 1))[0].relative_error;
}

bool passes(Fault fault) {
  return error_with(fault) <= kGradCheckTolerance;
}

}  // namespace

TEST_CASE("a right gradient passes and each kind of wrong one fails", "[autodiff]") {
  CHECK(passes(Fault::none));
  CHECK_FALSE(passes(Fault::scaled));
  CHECK_FALSE(passes(Fault::dropped_term));
  CHECK_FALSE(passes(Fault::overwrites));
  CHECK_FALSE(passes(Fault::not_a_number));
  CHECK_FALSE(passes(Fault::infinite));
  CHECK_FALSE(passes(Fault::silent));
}

TEST_CASE("a gradient that is 1 percent too large shows as an error of 1 percent", "[autodiff]") {
  // The share of x used elsewhere makes it a little less than that of the node alone.
  const double error = error_with(Fault::scaled);
  CHECK(error > 0.003);
  CHECK(error < 0.011);
}

TEST_CASE("a function that is not finite fails", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const auto function = [&](Tape*, std::span<const Var> in) {
    return std::vector<Var>{div(ctx, in[0], doubles(ctx, {0.0}, {1}))};
  };
  const Tensor x = doubles(ctx, {0.0, 1.0}, {2});
  CHECK_FALSE(grad_check(ctx, function, std::span(&x, 1))[0].relative_error <= kGradCheckTolerance);
}

TEST_CASE("every output and every input is checked", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Tensor inputs[] = {doubles(ctx, {0.5, 1.5}, {2}), doubles(ctx, {2.0, -1.0}, {2}),
                           from_host(ctx, std::vector<int32_t>{1}, {1})};
  for (int wrong_output : {-1, 0, 1}) {
    const auto function = [&](Tape*, std::span<const Var> in) {
      const auto fault = [&](int i) { return i == wrong_output ? Fault::scaled : Fault::none; };
      return std::vector<Var>{square(ctx, in[0], fault(0)), square(ctx, in[1], fault(1))};
    };
    const std::vector<GradCheckInput> results = grad_check(ctx, function, inputs);
    REQUIRE(results.size() == 3);
    for (int i : {0, 1}) {
      CHECK((results[i].relative_error <= kGradCheckTolerance) == (i != wrong_output));
      CHECK(results[i].elements == 2);
    }
    CHECK(results[2].elements == 0);
  }
}

TEST_CASE("large inputs are sampled to their last part", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Tensor x = ones(ctx, {1000});
  const auto function = [&](Tape*, std::span<const Var> in) {
    return std::vector<Var>{square(ctx, in[0], Fault::none)};
  };
  const GradCheckInput result =
      grad_check(ctx, function, std::span(&x, 1), {.max_elements = 50})[0];
  CHECK(result.elements == 50);
  CHECK(result.relative_error <= kGradCheckTolerance);
}

TEST_CASE("finite differences want f64", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Tensor x = ones(ctx, {2}, Dtype::f32);
  const auto function = [&](Tape*, std::span<const Var> in) {
    return std::vector<Var>{scale(ctx, in[0], 2.0)};
  };
  CHECK_THROWS_AS(grad_check(ctx, function, std::span(&x, 1)), Error);
}
