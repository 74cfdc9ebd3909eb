#include "core/error.h"
#include "train/optimizer_checks.h"
#include "train/schedule.h"

using namespace xtrain;

TEST_CASE("AdamW follows its formula, and vectors do not decay", "[train]") {
  for (ParameterKind kind :
       {ParameterKind::matrix, ParameterKind::embedding, ParameterKind::vector}) {
    for (Dtype dtype : {Dtype::f64, Dtype::f32}) check_adamw_formula(cpu_context(1), kind, dtype);
  }
}

TEST_CASE("AdamW in f32 stays within 1e-7 of f64 for ten steps", "[train]") {
  const Context ctx = cpu_context(1);
  const AdamWOptions options{0.9, 0.999, 1e-8, 0.1};
  const int n = 1000;
  const RandomStream stream = random_stream(3, 0, 0);
  std::vector<double> start(n);
  for (int i = 0; i < n; ++i) start[i] = static_cast<float>(0.2 * stream.uniform(0, i) - 0.1);
  OneParameter one(ctx, Dtype::f32, ParameterKind::matrix, start);
  AdamW optimizer(ctx, one.set, options, one.all());
  std::vector<ScalarAdamW> expected;
  for (double w : start) expected.push_back({w});
  for (int t = 1; t <= 10; ++t) {
    std::vector<double> grads(n);
    for (int i = 0; i < n; ++i) {
      grads[i] = static_cast<float>(stream.uniform(t, i) - 0.5);
      expected[i].step(t, 1e-3, grads[i], options, options.weight_decay);
    }
    one.set_grad(ctx, grads);
    take_step(ctx, optimizer, one.set, t, 1e-3);
  }
  const std::vector<double> w = doubles(ctx, one.parameter->value);
  double largest = 0.0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::abs(w[i] - expected[i].w));
  CHECK(largest <= 1e-7);
}

TEST_CASE("updates too small for bf16 add up in the master weights", "[train]") {
  const Context ctx = cpu_context(1);
  check_small_updates(ctx, 100, 1.0, 0.0, 0.94);
  check_small_updates(ctx, 1000, 0.0, 0.1, 0.94176);
}

TEST_CASE("an optimizer updates its own range only", "[train]") {
  check_own_range(cpu_context(1));
}

TEST_CASE("AdamW tells of each owned range when it is updated, the last one first", "[train]") {
  const Context ctx = cpu_context(1);
  ParameterSet set;  // in the arena: last, frozen, first
  set.add("first", {3}, ParameterKind::matrix, 0.0, 0.0);
  Parameter& frozen = set.add("frozen", {2}, ParameterKind::matrix, 0.0, 0.0);
  set.add("last", {4}, ParameterKind::matrix, 0.0, 0.0);
  frozen.trainable = false;
  set.allocate(ctx, Dtype::f32);
  fill(ctx, set.values(), 7.0);
  fill(ctx, set.grads(), 1.0);
  const int64_t middle = frozen.offset, first = set.find("first")->offset;
  const std::vector<int64_t> borders{0, middle, first, set.arena_size()};
  ArenaRanges owned;
  for (size_t i = 0; i + 1 < borders.size(); ++i) owned.push_back({borders[i], borders[i + 1]});
  AdamW optimizer(ctx, set, {}, owned);
  std::vector<int64_t> told;
  const auto moved = [&](int64_t offset) { return doubles(ctx, set.values())[offset] != 7.0; };
  const std::array<double, 3> scalars = optimizer.step_scalars(1, 0.1);
  const Tensor count = from_host(ctx, std::vector<double>{1.0}, {1});
  optimizer.step(ctx, from_host(ctx, std::span<const double>(scalars), {3}),
                 grad_scale(ctx, sum_of_squares(ctx, set.grads()), count, 0.0),
                 [&](ArenaRange range) {
                   told.push_back(range.begin);
                   CHECK(moved(first));
                   CHECK_FALSE(moved(middle));
                   CHECK(moved(0) == (range.begin == 0));
                 });
  CHECK(told == std::vector<int64_t>{first, middle, 0});
}

TEST_CASE("AdamW leaves frozen parameters and padding alone", "[train]") {
  const Context ctx = cpu_context(1);
  ParameterSet set;
  Parameter& trained = set.add("trained", {3}, ParameterKind::matrix, 0.0, 0.0);
  Parameter& frozen = set.add("frozen", {2}, ParameterKind::matrix, 0.0, 0.0);
  frozen.trainable = false;
  set.allocate(ctx, Dtype::f32);
  fill(ctx, set.values(), 7.0);
  fill(ctx, set.grads(), 1.0);
  AdamW optimizer(ctx, set, {}, {ArenaRange{0, set.arena_size()}});
  take_step(ctx, optimizer, set, 1, 0.1);
  const std::vector<double> values = doubles(ctx, set.values());
  for (int64_t i = 0; i < set.arena_size(); ++i) {
    const bool changes = i >= trained.offset && i < trained.offset + 3;
    CHECK((values[i] != 7.0) == changes);
  }
}

TEST_CASE("gradients are clipped to the largest norm", "[train]") {
  check_clipping(cpu_context(2));
}

TEST_CASE("huge gradients are clipped and taken", "[train]") {
  check_huge_gradients(cpu_context(1));
}

TEST_CASE("a gradient that is not finite changes no bit of weights and moments", "[train]") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    check_not_finite_changes_nothing(cpu_context(1), dtype);
  }
}

TEST_CASE("a gradient scale is read as it was written", "[train]") {
  const Context ctx = cpu_context(1);
  const Tensor count = from_host(ctx, std::vector<int64_t>{2}, {1});
  const Tensor squares = from_host(ctx, std::vector<double>{100.0}, {1});
  const GradScale scale = read_grad_scale(grad_scale(ctx, squares, count, 1.0));
  CHECK(scale.norm == 5.0);
  CHECK(scale.factor == 0.1);
  CHECK(scale.finite == 1.0);
  CHECK(scale.count == 2.0);
  CHECK_THROWS_WITH(read_grad_scale(squares),
                    "read_grad_scale: the tensor must be contiguous with shape (4); got (1)");
  CHECK_THROWS_WITH(grad_scale(ctx, squares, zeros(ctx, {2}, Dtype::f64), 1.0),
                    "grad_scale: squares and count must be [1]; got (1) and (2)");
  CHECK_THROWS_WITH(sum_of_squares(ctx, zeros(ctx, {2}, Dtype::bf16)),
                    "sum_of_squares: gradients must be f32 or f64; got bf16");
}

TEST_CASE("AdamW counts steps from 1", "[train]") {
  const Context ctx = cpu_context(1);
  OneParameter one(ctx, Dtype::f32, ParameterKind::matrix, {1.0});
  const AdamW optimizer(ctx, one.set, {0.5, 0.75, 1e-8, 0.0}, one.all());
  CHECK(optimizer.step_scalars(1, 0.5) == std::array<double, 3>{0.5, 2.0, 2.0});
  CHECK_THROWS_WITH(optimizer.step_scalars(0, 0.5), "adamw: steps count from 1; got 0");
}

TEST_CASE("the norm has the same bits for any number of threads", "[train]") {
  std::vector<float> values(100001);
  const RandomStream stream = random_stream(1, 0, 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(0, i) - 0.5f;
  const auto squares = [&](int threads) {
    const Context ctx = cpu_context(threads);
    return to_host<double>(ctx, sum_of_squares(ctx, from_host(ctx, values, {100001})));
  };
  for (int threads : {2, 3, 8}) CHECK(squares(threads) == squares(1));
}

TEST_CASE("owners of parts do together what one owner does, each in memory for its part",
          "[train]") {
  const int64_t n = 40000, cut = 12345;
  const RandomStream stream = random_stream(5, 0, 0);
  std::vector<double> start(n), grads(n);
  for (int64_t i = 0; i < n; ++i) {
    start[i] = stream.uniform(0, i) - 0.5;
    grads[i] = stream.uniform(1, i) - 0.5;
  }
  struct Outcome {
    std::vector<double> values, masters, first, second;
    int64_t bytes = 0;
  };
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    const auto train = [&](const ArenaRanges& owned) {
      const Context ctx = cpu_context(1);
      OneParameter one(ctx, dtype, ParameterKind::matrix, start);
      const int64_t bytes_before = ctx.allocator->current_bytes();
      AdamW optimizer(ctx, one.set, {}, owned);
      const int64_t bytes = ctx.allocator->current_bytes() - bytes_before;
      for (int t = 1; t <= 3; ++t) {
        one.set_grad(ctx, grads);
        take_step(ctx, optimizer, one.set, t, 0.01);
        optimizer.set_state(ctx, optimizer.state(ctx));  // changes nothing that is owned
      }
      const AdamWState state = optimizer.state(ctx);
      return Outcome{doubles(ctx, one.parameter->value), doubles(ctx, state.masters),
                     doubles(ctx, state.first_moments), doubles(ctx, state.second_moments), bytes};
    };
    const Outcome whole = train({{0, int64_t{1} << 40}});
    const std::vector<ArenaRanges> parts = {{{0, 100}, {cut, cut + 5000}, {39000, 40000}},
                                            {{100, cut}, {cut + 5000, 39000}}};
    for (const ArenaRanges& owned : parts) {
      INFO(dtype << ", from " << owned[0].begin);
      const Outcome part = train(owned);
      int64_t elements = 0;
      for (ArenaRange range : owned) {
        elements += range.end - range.begin;
        for (int64_t i = range.begin; i < range.end; ++i) {
          const bool same = part.values[i] == whole.values[i] &&
                            part.masters[i] == whole.masters[i] &&
                            part.first[i] == whole.first[i] && part.second[i] == whole.second[i];
          if (!same) FAIL("element " << i << " differs");
        }
      }
      CHECK(part.bytes < whole.bytes * elements / n + 10000);
    }
  }
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
