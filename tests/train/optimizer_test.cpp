#include <cmath>
#include <limits>

#include "core/copy.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"
#include "train/schedule.h"

using namespace xtrain;

namespace {

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
  void set_grad(const Context& ctx, std::vector<double> values) {
    copy(ctx, from_host(ctx, values, parameter->shape), parameter->grad);
    parameter->has_grad = true;
  }
  ArenaRange all() const { return {0, set.arena_size()}; }
};

std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// The update written out, one number at a time.
struct ScalarAdamW {
  double w, m = 0.0, v = 0.0;
  void step(int t, double lr, double g, const AdamWOptions& o, double decay) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w = w - lr * decay * w - lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

}  // namespace

TEST_CASE("AdamW follows its formula, and vectors do not decay", "[train]") {
  const Context ctx = cpu_context(1);
  const AdamWOptions options{0.9, 0.95, 1e-8, 0.1};
  for (ParameterKind kind :
       {ParameterKind::matrix, ParameterKind::embedding, ParameterKind::vector}) {
    for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
      INFO(dtype << ", kind " << static_cast<int>(kind));
      OneParameter one(ctx, dtype, kind, {1.0, -2.0, 0.0});
      AdamW optimizer(ctx, one.set, options, one.all());
      ScalarAdamW expected[3] = {{1.0}, {-2.0}, {0.0}};
      const double decay = kind == ParameterKind::vector ? 0.0 : 0.1;
      for (int t = 1; t <= 10; ++t) {
        const double g[3] = {0.5 * t, -1.0, std::sin(t)};
        one.set_grad(ctx, {g[0] * 4, g[1] * 4, g[2] * 4});
        optimizer.step(ctx, t, 1e-2 / t, 0.25);
        for (int i = 0; i < 3; ++i) expected[i].step(t, 1e-2 / t, g[i], options, decay);
      }
      CHECK(relative_difference(doubles(ctx, one.parameter->value),
                                {expected[0].w, expected[1].w, expected[2].w}) <=
            tolerance(dtype, 10));
    }
  }
}

TEST_CASE("updates too small for bf16 add up in the master weights", "[train]") {
  const Context ctx = cpu_context(1);
  OneParameter pushed(ctx, Dtype::bf16, ParameterKind::matrix, {1.0});
  AdamW without_decay(ctx, pushed.set, {0.9, 0.95, 1e-8, 0.0}, pushed.all());
  for (int t = 1; t <= 100; ++t) {
    pushed.set_grad(ctx, {1.0});
    without_decay.step(ctx, t, 6e-4, 1.0);
  }
  CHECK(std::abs(doubles(ctx, without_decay.master(*pushed.parameter))[0] - 0.94) < 1e-5);
  CHECK(doubles(ctx, pushed.parameter->value)[0] == 0.94140625);
  CHECK(without_decay.first_moment(*pushed.parameter).dtype() == Dtype::f32);
  CHECK(without_decay.second_moment(*pushed.parameter).dtype() == Dtype::f32);

  OneParameter decayed(ctx, Dtype::bf16, ParameterKind::matrix, {1.0});
  AdamW with_decay(ctx, decayed.set, {0.9, 0.95, 1e-8, 0.1}, decayed.all());
  for (int t = 1; t <= 1000; ++t) {
    decayed.set_grad(ctx, {0.0});
    with_decay.step(ctx, t, 6e-4, 1.0);
  }
  CHECK(std::abs(doubles(ctx, with_decay.master(*decayed.parameter))[0] - 0.94176) < 1e-5);
  CHECK(doubles(ctx, decayed.parameter->value)[0] == 0.94140625);
}

TEST_CASE("an optimizer updates its own range only", "[train]") {
  const Context ctx = cpu_context(1);
  OneParameter one(ctx, Dtype::f32, ParameterKind::vector, {1.0, 2.0, 3.0, 4.0});
  AdamW optimizer(ctx, one.set, {}, {1, 3});
  one.set_grad(ctx, {1.0, 1.0, 1.0, 1.0});
  optimizer.step(ctx, 1, 0.5, 1.0);
  const std::vector<double> w = doubles(ctx, one.parameter->value);
  CHECK(w[0] == 1.0);
  CHECK(std::abs(w[1] - 1.5) < 1e-6);
  CHECK(std::abs(w[2] - 2.5) < 1e-6);
  CHECK(w[3] == 4.0);
}

TEST_CASE("gradients are clipped to the largest norm", "[train]") {
  const Context ctx = cpu_context(2);
  const auto scale_of = [&](const std::vector<float>& grads, double max_norm) {
    const Tensor g = from_host(ctx, grads, {static_cast<int64_t>(grads.size())});
    return grad_scale(sum_of_squares(ctx, g), 1.0, max_norm);
  };
  const GradScale huge = scale_of(std::vector<float>(100, 1e20f), 1.0);
  CHECK(std::abs(huge.norm / 1e21 - 1.0) < 1e-6);
  CHECK(huge.finite);
  CHECK(std::abs(1e20 * huge.factor - 0.1) < 1e-6);
  CHECK_FALSE(scale_of({1.0f, std::numeric_limits<float>::infinity()}, 1.0).finite);
  CHECK_FALSE(scale_of({1.0f, std::numeric_limits<float>::quiet_NaN()}, 1.0).finite);
  const GradScale zero = scale_of({0.0f, 0.0f}, 1.0);
  CHECK(zero.norm == 0.0);
  CHECK(zero.factor == 1.0);
  CHECK(scale_of({3.0f, 4.0f}, 0.0).factor == 1.0);
  CHECK(scale_of({3.0f, 4.0f}, 10.0).factor == 1.0);
  CHECK(scale_of({3.0f, 4.0f}, 1.0).factor == 0.2);
  CHECK(grad_scale(0.0, 0.0, 1.0).factor == 0.0);
}

TEST_CASE("the norm has the same bits for any number of threads", "[train]") {
  std::vector<float> values(100001);
  const RandomStream stream = random_stream(1, 0, 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(0, i) - 0.5f;
  const auto squares = [&](int threads) {
    const Context ctx = cpu_context(threads);
    return sum_of_squares(ctx, from_host(ctx, values, {100001}));
  };
  for (int threads : {2, 3, 8}) CHECK(squares(threads) == squares(1));
}

TEST_CASE("learning rates follow their schedules", "[train]") {
  TrainConfig c;
  c.learning_rate = 1.0;
  c.max_steps = 110;
  c.warmup_steps = 10;
  c.min_lr_ratio = 0.1;
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-12; };
  for (LrSchedule schedule :
       {LrSchedule::cosine, LrSchedule::linear, LrSchedule::constant, LrSchedule::wsd}) {
    c.lr_schedule = schedule;
    CHECK(close(learning_rate_at(c, 1), 0.1));
    CHECK(close(learning_rate_at(c, 5), 0.5));
    CHECK(close(learning_rate_at(c, 10), 1.0));
  }
  c.lr_schedule = LrSchedule::cosine;
  CHECK(close(learning_rate_at(c, 60), 0.55));
  CHECK(close(learning_rate_at(c, 35), 0.1 + 0.45 * (1 + std::sqrt(0.5))));
  CHECK(close(learning_rate_at(c, 110), 0.1));
  c.decay_steps = 60;
  CHECK(close(learning_rate_at(c, 60), 0.1));
  CHECK(close(learning_rate_at(c, 100), 0.1));
  c.decay_steps.reset();
  c.lr_schedule = LrSchedule::linear;
  CHECK(close(learning_rate_at(c, 60), 0.55));
  CHECK(close(learning_rate_at(c, 110), 0.1));
  c.lr_schedule = LrSchedule::constant;
  CHECK(learning_rate_at(c, 110) == 1.0);
  c.lr_schedule = LrSchedule::wsd;  // the last fifth, 22 steps, falls
  CHECK(close(learning_rate_at(c, 88), 1.0));
  CHECK(close(learning_rate_at(c, 99), 0.55));
  CHECK(close(learning_rate_at(c, 110), 0.1));
}
