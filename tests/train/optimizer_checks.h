#pragma once
// What the optimizer and the clipping must do on every device.

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/copy.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"

namespace xtrain {

inline std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

inline GradScale scale_of(const Context& ctx, const Tensor& grads, double count, double max_norm) {
  const Tensor counted = from_host(ctx, std::vector<double>{count}, {1});
  const Tensor scale = grad_scale(ctx, sum_of_squares(ctx, grads), counted, max_norm);
  const std::vector<double> values = to_host<double>(ctx, scale);
  return {values[0], values[1], values[2], values[3]};
}

// One step on the sum of the gradients of `count` losses.
inline void take_step(const Context& ctx, AdamW& optimizer, const ParameterSet& parameters,
                      int64_t step, double learning_rate, double count = 1.0,
                      double max_norm = 0.0) {
  const Tensor counted = from_host(ctx, std::vector<double>{count}, {1});
  const Tensor squares = sum_of_squares(ctx, parameters.grads());
  const std::array<double, 3> scalars = optimizer.step_scalars(step, learning_rate);
  optimizer.step(ctx, from_host(ctx, std::span<const double>(scalars), {3}),
                 grad_scale(ctx, squares, counted, max_norm));
}

// A parameter set of one tensor with a given value.
struct OneParameter {
  ParameterSet set;
  Parameter* parameter;

  OneParameter(const Context& ctx, Dtype dtype, ParameterKind kind, std::vector<double> values) {
    const int64_t n = static_cast<int64_t>(values.size());
    parameter = &set.add("w", {n}, kind, 0.0, 0.0);
    set.allocate(ctx, dtype);
    copy(ctx, from_host(ctx, values, {n}), parameter->value);
  }
  void set_grad(const Context& ctx, const std::vector<double>& values) {
    copy(ctx, from_host(ctx, values, parameter->shape), parameter->grad);
    parameter->has_grad = true;
  }
  ArenaRanges all() const { return {ArenaRange{0, set.arena_size()}}; }
};

// The update written out in f64, one number at a time.
struct ScalarAdamW {
  double w, m = 0.0, v = 0.0;
  void step(int t, double lr, double g, const AdamWOptions& o, double decay) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w = w - lr * decay * w - lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

inline void check_adamw_formula(const Context& ctx, ParameterKind kind, Dtype dtype) {
  INFO(dtype << ", kind " << static_cast<int>(kind));
  const AdamWOptions options{0.9, 0.95, 1e-8, 0.1};
  OneParameter one(ctx, dtype, kind, {1.0, -2.0, 0.0});
  AdamW optimizer(ctx, one.set, options, one.all());
  ScalarAdamW expected[3] = {{1.0}, {-2.0}, {0.0}};
  const double decay = kind == ParameterKind::vector ? 0.0 : 0.1;
  for (int t = 1; t <= 10; ++t) {
    const double g[3] = {0.5 * t, -1.0, std::sin(t)};
    one.set_grad(ctx, {g[0] * 4, g[1] * 4, g[2] * 4});
    take_step(ctx, optimizer, one.set, t, 1e-2 / t, 4.0);
    for (int i = 0; i < 3; ++i) expected[i].step(t, 1e-2 / t, g[i], options, decay);
  }
  CHECK(relative_difference(doubles(ctx, one.parameter->value),
                            {expected[0].w, expected[1].w, expected[2].w}) <= tolerance(dtype, 10));
}

// One bf16 weight that starts at 1: the same gradient and decay for a number of steps of 6e-4.
inline void check_small_updates(const Context& ctx, int steps, double gradient, double decay,
                                double master) {
  OneParameter one(ctx, Dtype::bf16, ParameterKind::matrix, {1.0});
  AdamW optimizer(ctx, one.set, {0.9, 0.95, 1e-8, decay}, one.all());
  for (int t = 1; t <= steps; ++t) {
    one.set_grad(ctx, {gradient});
    take_step(ctx, optimizer, one.set, t, 6e-4);
  }
  const AdamWState state = optimizer.state(ctx);
  CHECK(std::abs(doubles(ctx, state.masters)[0] - master) < 1e-5);
  CHECK(doubles(ctx, one.parameter->value)[0] == 0.94140625);
  CHECK(state.first_moments.dtype() == Dtype::f32);
  CHECK(state.second_moments.dtype() == Dtype::f32);
}

inline void check_own_range(const Context& ctx) {
  OneParameter one(ctx, Dtype::f32, ParameterKind::vector, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  AdamW optimizer(ctx, one.set, {}, {ArenaRange{1, 10}});
  one.set_grad(ctx, std::vector<double>(11, 1.0));
  take_step(ctx, optimizer, one.set, 1, 0.5);
  const std::vector<double> w = doubles(ctx, one.parameter->value);
  CHECK(w[0] == 1.0);
  for (int i = 1; i < 10; ++i) CHECK(std::abs(w[i] - (i + 0.5)) < 1e-6);
  CHECK(w[10] == 11.0);
}

inline void check_clipping(const Context& ctx) {
  const auto scale = [&](const std::vector<float>& grads, double max_norm) {
    return scale_of(ctx, from_host(ctx, grads, {static_cast<int64_t>(grads.size())}), 1.0,
                    max_norm);
  };
  const GradScale huge = scale(std::vector<float>(100, 1e20f), 1.0);
  CHECK(std::abs(huge.norm / 1e21 - 1.0) < 1e-6);
  CHECK(huge.finite == 1.0);
  CHECK(std::abs(1e20 * huge.factor - 0.1) < 1e-6);
  CHECK(scale({1.0f, std::numeric_limits<float>::infinity()}, 1.0).finite == 0.0);
  CHECK(scale({1.0f, std::numeric_limits<float>::quiet_NaN()}, 1.0).finite == 0.0);
  const GradScale zero = scale({0.0f, 0.0f}, 1.0);
  CHECK(zero.norm == 0.0);
  CHECK(zero.factor == 1.0);
  CHECK(zero.count == 1.0);
  CHECK(scale({3.0f, 4.0f}, 0.0).factor == 1.0);
  CHECK(scale({3.0f, 4.0f}, 10.0).factor == 1.0);
  CHECK(scale({3.0f, 4.0f}, 1.0).factor == 0.2);
  CHECK(scale({}, 1.0).norm == 0.0);
  const Tensor grads = from_host(ctx, std::vector<float>{3, 4}, {2});
  const GradScale mean = scale_of(ctx, grads, 10.0, 0.0), nothing = scale_of(ctx, grads, 0.0, 1.0);
  CHECK(mean.norm == 0.5);
  CHECK(mean.factor == 0.1);
  CHECK(nothing.norm == 0.0);
  CHECK(nothing.factor == 0.0);
  CHECK(nothing.finite == 1.0);
}

// Gradients of 1e20 are clipped like any other: the update is that of gradients of 0.1.
inline void check_huge_gradients(const Context& ctx) {
  OneParameter one(ctx, Dtype::f32, ParameterKind::vector, std::vector<double>(100, 1.0));
  AdamW optimizer(ctx, one.set, {}, one.all());
  one.set_grad(ctx, std::vector<double>(100, 1e20));
  take_step(ctx, optimizer, one.set, 1, 0.5, 1.0, 1.0);
  for (double w : doubles(ctx, one.parameter->value)) CHECK(std::abs(w - 0.5) < 1e-6);
  const Tensor moments = optimizer.state(ctx).first_moments;
  for (double m : doubles(ctx, one.set.slice_of(moments, *one.parameter))) {
    CHECK(std::abs(m - 0.01) < 1e-8);
  }
}

inline void check_not_finite_changes_nothing(const Context& ctx, Dtype dtype) {
  OneParameter one(ctx, dtype, ParameterKind::matrix, {1.0, -2.0, 3.0, 0.1, 0.2});
  AdamW optimizer(ctx, one.set, {}, one.all());
  one.set_grad(ctx, {0.1, 0.2, 0.3, 0.4, 0.5});
  take_step(ctx, optimizer, one.set, 1, 0.1);
  const auto state = [&] {
    const AdamWState s = optimizer.state(ctx);
    return std::vector{doubles(ctx, one.parameter->value), doubles(ctx, s.masters),
                       doubles(ctx, s.first_moments), doubles(ctx, s.second_moments)};
  };
  const auto before = state();
  for (double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    one.set_grad(ctx, {1.0, 1.0, 1.0, 1.0, bad});
    take_step(ctx, optimizer, one.set, 2, 0.1);
    CHECK(state() == before);
  }
  one.set_grad(ctx, {1.0, 1.0, 1.0, 1.0, 1.0});
  take_step(ctx, optimizer, one.set, 2, 0.1);
  CHECK(state() != before);
}

}  // namespace xtrain
