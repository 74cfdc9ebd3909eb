#include "ops/concat/concat.h"

#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;
using Doubles = std::vector<double>;

TEST_CASE("concat cases", "[ops]") {
  check_op_cases("concat");
}

TEST_CASE("concat puts parts in order and hands each its slice of the gradient", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var a = tape.leaf(from_host(ctx, Doubles{1, 2, 3, 4}, {2, 2}));
  const Var b = tape.leaf(from_host(ctx, Doubles{5, 6}, {2, 1}));
  const Var y = concat(ctx, {a, b}, 1);
  CHECK(y.shape() == Shape{2, 3});
  CHECK(to_host<double>(ctx, y.value) == Doubles{1, 2, 5, 3, 4, 6});
  const Tensor dy = from_host(ctx, Doubles{10, 20, 30, 40, 50, 60}, {2, 3});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<double>(ctx, tape.grad(a)) == Doubles{10, 20, 40, 50});
  CHECK(to_host<double>(ctx, tape.grad(b)) == Doubles{30, 60});
  CHECK(tape.grad(a).shares_storage(dy));
  CHECK(tape.grad(b).shares_storage(dy));
}

TEST_CASE("parts that do not fit are refused with their shapes", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, Doubles(6), {2, 3}), y = from_host(ctx, Doubles(8), {2, 4});
  CHECK_THROWS_WITH(concat(ctx, {}, 0), "concat: at least one part must be given; got none");
  CHECK_THROWS_WITH(concat(ctx, {x, y}, 0),
                    "concat: sizes must agree except in dimension 0; got (2, 3) and (2, 4)");
  CHECK_THROWS_WITH(concat(ctx, {x, x}, 2), "tensor: dimension must be in [-2, 2); got 2");
  const Tensor f32 = from_host(ctx, std::vector<float>(6), {2, 3});
  CHECK_THROWS_WITH(concat(ctx, {x, f32}, 0),
                    "concat: dtypes must agree; got f64 and f32; cast one of them");
}
