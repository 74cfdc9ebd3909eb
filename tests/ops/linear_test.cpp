#include "ops/linear/linear.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/view/view.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

Parameter parameter(const Tensor& value) {
  Parameter p;
  p.shape = value.shape();
  p.value = value;
  return p;
}

Tensor filled(const Context& ctx, const Shape& shape, Dtype dtype, double value) {
  Tensor result = empty(ctx, shape, dtype);
  fill(ctx, result, value);
  return result;
}

void backward_of_ones(Tape& tape, const Var& y) {
  const Tensor dy = filled(tape.ctx(), y.shape(), y.dtype(), 1.0);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
}

}  // namespace

TEST_CASE("linear cases", "[ops]") {
  check_op_cases("linear");
}

TEST_CASE("linear has the known values and gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(from_host(ctx, std::vector<double>{1, 2, 3, 4}, {2, 2}));
  const Var weight = tape.leaf(from_host(ctx, std::vector<double>{1, 0, 0, 1, 1, -1}, {3, 2}));
  const Var bias = tape.leaf(from_host(ctx, std::vector<double>{10, 20, 30}, {3}));
  const Var y = linear(ctx, x, weight, bias);
  CHECK(to_host<double>(ctx, y.value) == std::vector<double>{11, 22, 29, 13, 24, 29});
  const Tensor dy = from_host(ctx, std::vector<double>{1, 2, 3, 10, 20, 30}, {2, 3});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<double>(ctx, tape.grad(x)) == std::vector<double>{4, -1, 40, -10});
  CHECK(to_host<double>(ctx, tape.grad(weight)) == std::vector<double>{31, 42, 62, 84, 93, 126});
  CHECK(to_host<double>(ctx, tape.grad(bias)) == std::vector<double>{11, 22, 33});
}

TEST_CASE("gradients of bf16 linear parameters are f32 sums over passes", "[ops]") {
  const Context ctx = cpu_context(1);
  Parameter weight = parameter(filled(ctx, {2, 3}, Dtype::bf16, 0.5));
  Parameter bias = parameter(filled(ctx, {2}, Dtype::bf16, 0.0));
  const int64_t rows = 300;  // not a bf16 number, so a bf16 sum would miss it
  for (int pass = 1; pass <= 3; ++pass) {
    Tape tape(ctx);
    const Var x(filled(ctx, {rows, 3}, Dtype::bf16, 1.0));
    backward_of_ones(tape, linear(ctx, x, tape.parameter(weight), tape.parameter(bias)));
    const float sum = static_cast<float>(pass * rows + pass - 1);
    CHECK(to_host<float>(ctx, weight.grad) == std::vector<float>(6, sum));
    CHECK(to_host<float>(ctx, bias.grad) == std::vector<float>(2, sum));
    fill(ctx, weight.grad, sum + 1);  // backward adds in place to whatever is there
    fill(ctx, bias.grad, sum + 1);
  }
}

TEST_CASE("linear reads a slice of the last dimension where it lies", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var packed(filled(ctx, {64, 3 * 64}, Dtype::f32, 1.0));
  const Var weight(filled(ctx, {1, 64}, Dtype::f32, 1.0));
  ctx.allocator->reset_peak();
  const int64_t before = ctx.allocator->current_bytes();
  const Var y = linear(ctx, slice(ctx, packed, 1, 64, 64), weight, Var());
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>(64, 64.0f));
  CHECK(ctx.allocator->peak_bytes() - before == y.value.nbytes());
}

TEST_CASE("linear skips gradients that nothing needs", "[ops]") {
  const Context ctx = cpu_context(1);
  Parameter weight = parameter(filled(ctx, {2, 2}, Dtype::f32, 1.0));
  Parameter frozen = parameter(filled(ctx, {2, 2}, Dtype::f32, 1.0));
  frozen.trainable = false;
  Tape tape(ctx);
  const Var x(filled(ctx, {3, 2}, Dtype::f32, 1.0));
  const Var hidden = linear(ctx, x, tape.parameter(weight), Var());
  backward_of_ones(tape, linear(ctx, hidden, tape.parameter(frozen), Var()));
  CHECK(to_host<float>(ctx, weight.grad) == std::vector<float>(4, 6.0f));
  CHECK_FALSE(frozen.grad.defined());
}

TEST_CASE("the bias gradient of many rows keeps f32 accuracy", "[ops]") {
  const Context ctx = cpu_context(1);
  // 0.1f added 2^17 times one by one in f32 is off by more than 1e-4 of the sum.
  const int64_t rows = int64_t{1} << 17;
  Tape tape(ctx);
  const Var bias = tape.leaf(filled(ctx, {1}, Dtype::f32, 0.0));
  const Var weight(filled(ctx, {1, 1}, Dtype::f32, 1.0));
  const Var y = linear(ctx, Var(filled(ctx, {rows, 1}, Dtype::f32, 1.0)), weight, bias);
  const Tensor dy = filled(ctx, y.shape(), Dtype::f32, 0.1f);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  const double sum = static_cast<double>(0.1f) * static_cast<double>(rows);
  CHECK(std::abs(to_host<float>(ctx, tape.grad(bias))[0] / sum - 1.0) < 1e-5);
}

TEST_CASE("linear names the shapes and dtypes that do not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto f32 = [&](const Shape& shape) { return Var(zeros(ctx, shape, Dtype::f32)); };
  CHECK_THROWS_WITH(linear(ctx, f32({4, 3}), f32({2, 5}), Var()),
                    "linear: inner sizes must agree; got x (4, 3) and weight (2, 5)");
  CHECK_THROWS_WITH(linear(ctx, f32({4, 3}), f32({2, 3}), f32({3})),
                    "linear: bias must have shape (2) beside weight (2, 3); got (3)");
  CHECK_THROWS_WITH(linear(ctx, f32({4, 3}), f32({3}), Var()),
                    "linear: x must be [..., in] and weight [out, in]; got (4, 3) and (3)");
  CHECK_THROWS_WITH(linear(ctx, f32({4, 3}), Var(zeros(ctx, {2, 3}, Dtype::bf16)), Var()),
                    "linear: dtypes must be equal; got x f32 and weight bf16");
}
