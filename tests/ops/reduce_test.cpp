#include "ops/reduce/reduce.h"

#include <cmath>

#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;
using Doubles = std::vector<double>;

namespace {

Tensor counted(const Context& ctx, const Shape& shape) {
  Doubles values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  return from_host(ctx, values, shape);
}

}  // namespace

TEST_CASE("reduce cases", "[ops]") {
  check_op_cases("reduce");
}

TEST_CASE("sums over any dimensions have the known values and shapes", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3, 2});
  const auto check_sum = [&](const std::vector<int>& dims, const Shape& shape, const Shape& kept,
                             const Doubles& values) {
    const Tensor y = sum(ctx, x, dims).value, z = sum(ctx, x, dims, true).value;
    CHECK(y.shape() == shape);
    CHECK(z.shape() == kept);
    CHECK(to_host<double>(ctx, y) == values);
    CHECK(to_host<double>(ctx, z) == values);
  };
  check_sum({}, {}, {1, 1, 1}, {78});
  check_sum({0}, {3, 2}, {1, 3, 2}, {8, 10, 12, 14, 16, 18});
  check_sum({1}, {2, 2}, {2, 1, 2}, {9, 12, 27, 30});
  check_sum({-1}, {2, 3}, {2, 3, 1}, {3, 7, 11, 15, 19, 23});
  check_sum({2, 0}, {3}, {1, 3, 1}, {18, 26, 34});
  check_sum({0, 1, 2}, {}, {1, 1, 1}, {78});
  CHECK(to_host<double>(ctx, mean(ctx, x, {1}).value) == Doubles{3, 4, 9, 10});
  CHECK(to_host<double>(ctx, mean(ctx, x).value) == Doubles{6.5});
}

TEST_CASE("the sum over nothing is 0 and the mean over nothing is NaN", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = empty(ctx, {3, 0}, Dtype::f32);
  CHECK(to_host<float>(ctx, sum(ctx, x, {1}).value) == std::vector<float>{0, 0, 0});
  CHECK(to_host<float>(ctx, sum(ctx, x).value) == std::vector<float>{0});
  for (float y : to_host<float>(ctx, mean(ctx, x, {1}).value)) CHECK(std::isnan(y));
  CHECK(sum(ctx, x, {0}).value.shape() == Shape{0});
  Tape tape(ctx);
  const Var leaf = tape.leaf(x);
  tape.backward(mean(ctx, leaf));
  CHECK(tape.grad(leaf).shape() == Shape{3, 0});
}

TEST_CASE("backward of sum and mean repeats the gradient without a copy", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var a = tape.leaf(counted(ctx, {3, 4})), b = tape.leaf(counted(ctx, {3, 4}));
  const Var outputs[] = {sum(ctx, a, {1}), mean(ctx, b, {0}, true)};
  const Tensor gradients[] = {counted(ctx, {3}), counted(ctx, {1, 4})};
  tape.backward(outputs, gradients);
  CHECK(tape.grad(a).shares_storage(gradients[0]));
  CHECK(tape.grad(a).strides()[1] == 0);
  CHECK(tape.grad(b).strides()[0] == 0);
  CHECK(to_host<double>(ctx, tape.grad(a)) == Doubles{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  CHECK(to_host<double>(ctx, tape.grad(b))[5] == 2.0 / 3.0);
}

TEST_CASE("long sums keep their accuracy", "[ops]") {
  const Context ctx = cpu_context(2);
  // A running f32 sum of ones stops at 2^24, one of bf16 at 256.
  const int64_t many = (int64_t{1} << 24) + 3;
  const Tensor one = from_host(ctx, std::vector<float>{1.0f}, {1, 1});
  CHECK(to_host<float>(ctx, sum(ctx, one.expand({many, 1})).value)[0] == static_cast<float>(many));
  const Tensor small = from_host(ctx, std::vector<BFloat16>{1.0f}, {1});
  CHECK(to_host<BFloat16>(ctx, sum(ctx, small.expand({4096})).value)[0] == 4096.0f);

  const int64_t n = 1 << 20;
  std::vector<float> values(2 * n);
  const RandomStream stream = random_stream(1, 0, 0);
  double exact = 0.0;
  for (int64_t i = 0; i < 2 * n; ++i) {
    values[i] = stream.uniform(0, i);
    if (i % 2 == 0) exact += values[i];
  }
  const Tensor x = from_host(ctx, values, {n, 2});
  const auto error = [&](const Tensor& y) {
    return std::abs(to_host<float>(ctx, y)[0] - exact) / exact;
  };
  CHECK(error(sum(ctx, x, {0}).value) <= tolerance(Dtype::f32));
  CHECK(error(sum(ctx, x.slice(1, 0, 1)).value) <= tolerance(Dtype::f32));
}

TEST_CASE("long sums have the same bits for any number of threads", "[ops]") {
  std::vector<float> values(300000);
  const RandomStream stream = random_stream(2, 0, 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(0, i) - 0.5f;
  for (const Shape& shape : {Shape{1, 300000}, Shape{100000, 3}, Shape{300, 1000}}) {
    for (int dim : {0, 1}) {
      const auto run = [&](int threads) {
        const Context ctx = cpu_context(threads);
        return to_host<float>(ctx, sum(ctx, from_host(ctx, values, shape), {dim}).value);
      };
      const std::vector<float> expected = run(1);
      for (int threads : {2, 3, 8}) CHECK(run(threads) == expected);
    }
  }
}

TEST_CASE("dimensions that do not exist or come twice are refused", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3});
  CHECK_THROWS_WITH(sum(ctx, x, {2}), "tensor: dimension must be in [-2, 2); got 2");
  CHECK_THROWS_WITH(mean(ctx, x, {1, -1}),
                    "mean: each dimension may be named once; got -1 again for shape (2, 3)");
}
