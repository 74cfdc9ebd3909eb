#include "ops/matmul/matmul.h"

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

Tensor counting(const Context& ctx, const Shape& shape) {
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return from_host(ctx, values, shape);
}

Tensor ones(const Context& ctx, const Tensor& like) {
  Tensor result = empty_like(ctx, like);
  fill(ctx, result, 1.0);
  return result;
}

}  // namespace

TEST_CASE("matmul cases", "[ops]") {
  check_op_cases("matmul");
}

TEST_CASE("matmul has the known values and gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var a = tape.leaf(from_host(ctx, std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}));
  const Var b = tape.leaf(from_host(ctx, std::vector<double>{1, 0, 0, 1, 2, -1}, {3, 2}));
  const Var y = matmul(ctx, a, b);
  CHECK(to_host<double>(ctx, y.value) == std::vector<double>{7, -1, 16, -1});
  const Tensor dy = from_host(ctx, std::vector<double>{1, 10, 100, 1000}, {2, 2});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<double>(ctx, tape.grad(a)) == std::vector<double>{1, 10, -8, 100, 1000, -800});
  CHECK(to_host<double>(ctx, tape.grad(b)) == std::vector<double>{401, 4010, 502, 5020, 603, 6030});
}

TEST_CASE("the gradient of an operand that repeats is the sum over its repeats", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor a = counting(ctx, {2, 3}), b = counting(ctx, {4, 3, 5});
  Tape tape(ctx);
  const Var repeats = tape.leaf(a);
  const Var y = matmul(ctx, repeats, Var(b));
  CHECK(y.shape() == Shape{4, 2, 5});
  const Tensor dy = ones(ctx, y.value);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  // Each of the two rows gets the sum of b over its batches and columns.
  CHECK(to_host<double>(ctx, tape.grad(repeats)) ==
        std::vector<double>{490, 590, 690, 490, 590, 690});
}

TEST_CASE("matmul adds to a gradient that is already there", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(from_host(ctx, std::vector<double>{3}, {1, 1}));
  const Var y = matmul(ctx, x, x);
  tape.backward(y);
  CHECK(to_host<double>(ctx, tape.grad(x)) == std::vector<double>{6});
}

TEST_CASE("matmul over an empty inner dimension gives zeros from dirty memory", "[ops]") {
  const Context ctx = cpu_context(1);
  for (int i = 0; i < 3; ++i) fill(ctx, empty(ctx, {3, 4}, Dtype::f32), 7.0);
  Tape tape(ctx);
  const Var a = tape.leaf(empty(ctx, {3, 0}, Dtype::f32));
  const Var b = tape.leaf(empty(ctx, {0, 4}, Dtype::f32));
  const Var y = matmul(ctx, a, b);
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>(12, 0.0f));
  const Tensor dy = ones(ctx, y.value);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(tape.grad(a).shape() == Shape{3, 0});
  CHECK(tape.grad(b).shape() == Shape{0, 4});
}

TEST_CASE("the gradient of matmul through no columns is zero, not what the memory held", "[ops]") {
  const Context ctx = cpu_context(1);
  for (int i = 0; i < 3; ++i) fill(ctx, empty(ctx, {2, 3}, Dtype::f32), 7.0);
  Tape tape(ctx);
  const Var a = tape.leaf(zeros(ctx, {2, 3}, Dtype::f32));
  const Var y = matmul(ctx, a, Var(empty(ctx, {3, 0}, Dtype::f32)));
  const Tensor dy = empty_like(ctx, y.value);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, tape.grad(a)) == std::vector<float>(6, 0.0f));
}

TEST_CASE("matmul names the shapes that do not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto f32 = [&](const Shape& shape) { return Var(zeros(ctx, shape, Dtype::f32)); };
  CHECK_THROWS_WITH(matmul(ctx, f32({4, 3}), f32({5, 2})),
                    "matmul: inner sizes must agree; got (4, 3) x (5, 2)");
  CHECK_THROWS_WITH(matmul(ctx, f32({3}), f32({3, 2})),
                    "matmul: ranks must be at least 2; got (3) x (3, 2)");
  CHECK_THROWS_AS(matmul(ctx, f32({2, 4, 3}), f32({3, 3, 2})), Error);
  CHECK_THROWS_WITH(matmul(ctx, f32({4, 3}), Var(zeros(ctx, {3, 2}, Dtype::f64))),
                    "matmul: dtypes must be equal; got f32 x f64");
}
