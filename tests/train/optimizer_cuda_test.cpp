#include "support/gpu.h"
#include "train/optimizer_checks.h"

using namespace xtrain;

namespace {

// A few parameters of odd sizes with fixed values.
struct Parameters {
  ParameterSet set;

  Parameters(const Context& ctx, Dtype dtype) {
    set.add("table", {97, 101}, ParameterKind::embedding, 0.0, 0.0);  // more than one piece
    set.add("bias", {3}, ParameterKind::vector, 0.0, 0.0);
    set.add("weight", {7, 9}, ParameterKind::matrix, 0.0, 0.0);
    set.add("empty", {0}, ParameterKind::matrix, 0.0, 0.0);
    set.allocate(ctx, dtype);
    copy(ctx, random(ctx, 0, 0.1), set.values());
  }
  Tensor random(const Context& ctx, int64_t number, double largest) const {
    const RandomStream stream = random_stream(11, 0, 0);
    std::vector<double> values(set.arena_size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = largest * (2.0 * stream.uniform(number, i) - 1.0);
    }
    return from_host(ctx, values, {set.arena_size()});
  }
};

// Weights, moments and rounded values of all parameters after ten steps.
std::vector<std::vector<double>> state_after_ten_steps(const Context& ctx, Dtype dtype,
                                                       ArenaRange owned) {
  Parameters parameters(ctx, dtype);
  AdamW optimizer(ctx, parameters.set, {0.9, 0.95, 1e-8, 0.1}, {owned});
  for (int t = 1; t <= 10; ++t) {
    copy(ctx, parameters.random(ctx, t, std::pow(10.0, t - 5)), parameters.set.grads());
    const std::array<double, 3> scalars = optimizer.step_scalars(t, 1e-3 * t);
    const GradScale scale{1.0, 1.0 / 3.0, 1.0, 3.0};
    optimizer.step(ctx, from_host(ctx, std::span<const double>(scalars), {3}),
                   from_host(ctx, std::vector<double>{scale.norm, scale.factor, scale.finite, 3},
                             {kGradScaleFields}));
  }
  const AdamWState state = optimizer.state(ctx);
  return {doubles(ctx, parameters.set.values()), doubles(ctx, state.masters),
          doubles(ctx, state.first_moments), doubles(ctx, state.second_moments)};
}

}  // namespace

TEST_CASE("AdamW gives the same bits on the CPU and the GPU", "[cuda]") {
  const Context cpu = cpu_context(1);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    for (ArenaRange owned : {ArenaRange{0, int64_t{1} << 40}, ArenaRange{5, 8301}}) {
      INFO(dtype << ", from " << owned.begin);
      CHECK(state_after_ten_steps(test_cuda_context(), dtype, owned) ==
            state_after_ten_steps(cpu, dtype, owned));
    }
  }
}

TEST_CASE("AdamW on the GPU follows its formula", "[cuda]") {
  for (ParameterKind kind :
       {ParameterKind::matrix, ParameterKind::embedding, ParameterKind::vector}) {
    for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
      check_adamw_formula(test_cuda_context(), kind, dtype);
    }
  }
}

TEST_CASE("updates too small for bf16 add up in the master weights on the GPU", "[cuda]") {
  check_small_updates(test_cuda_context(), 100, 1.0, 0.0, 0.94);
  check_small_updates(test_cuda_context(), 1000, 0.0, 0.1, 0.94176);
}

TEST_CASE("an optimizer on the GPU updates its own range only", "[cuda]") {
  check_own_range(test_cuda_context());
}

TEST_CASE("AdamW on the GPU leaves padding alone", "[cuda]") {
  const Context& ctx = test_cuda_context();
  OneParameter one(ctx, Dtype::f32, ParameterKind::matrix, std::vector<double>(5, 1.0));
  fill(ctx, one.set.values(), 7.0);
  fill(ctx, one.set.grads(), 1.0);
  AdamW optimizer(ctx, one.set, {}, one.all());
  take_step(ctx, optimizer, one.set, 1, 0.1);
  const std::vector<double> values = doubles(ctx, one.set.values());
  for (int64_t i = 0; i < one.set.arena_size(); ++i) CHECK((values[i] != 7.0) == (i < 5));
}

TEST_CASE("gradients on the GPU are clipped to the largest norm", "[cuda]") {
  check_clipping(test_cuda_context());
  check_huge_gradients(test_cuda_context());
}

TEST_CASE("a gradient that is not finite changes no bit on the GPU", "[cuda]") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    check_not_finite_changes_nothing(test_cuda_context(), dtype);
  }
}

TEST_CASE("the norm on the GPU is that of the CPU and has the same bits each time", "[cuda]") {
  const Context& gpu = test_cuda_context();
  const Context cpu = cpu_context(1);
  const RandomStream stream = random_stream(1, 0, 0);
  for (int64_t n : {1, 3, 1000, 100001, 5000003}) {
    std::vector<float> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = stream.uniform(0, i) - 0.5f;
    const auto squares = [&](const Context& ctx, int64_t begin) {
      const Tensor x = from_host(ctx, values, {n}).slice(0, begin, n - begin);
      return to_host<double>(ctx, sum_of_squares(ctx, x))[0];
    };
    for (int64_t begin : {0, 1}) {
      INFO(n << " elements from " << begin);
      const double expected = squares(cpu, begin), sum = squares(gpu, begin);
      CHECK(std::abs(sum - expected) <= tolerance(Dtype::f64, n) * expected);
      CHECK(squares(gpu, begin) == sum);
    }
  }
}
