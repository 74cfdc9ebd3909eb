#include "ops/add_relu/add_relu.h"

#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("add_relu cases", "[ops]") {
  check_op_cases("add_relu");
}

TEST_CASE("add_relu has the known values and gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var a = tape.leaf(from_host(ctx, std::vector<float>{1, -3, 2, 0.5f}, {2, 2}));
  const Var b = tape.leaf(from_host(ctx, std::vector<float>{2, 1, -2, -1}, {2, 2}));
  const Var y = add_relu(ctx, a, b);
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>{3, 0, 0, 0});
  const Tensor dy = from_host(ctx, std::vector<float>{5, 6, 7, 8}, {2, 2});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, tape.grad(a)) == std::vector<float>{5, 0, 0, 0});
  CHECK(to_host<float>(ctx, tape.grad(b)) == std::vector<float>{5, 0, 0, 0});
}

TEST_CASE("add_relu lets no infinity or NaN pass for a number", "[ops]") {
  const Context ctx = cpu_context(1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto value = [&](float a, float b) {
    const Tensor left = from_host(ctx, std::vector<float>{a}, {1});
    const Tensor right = from_host(ctx, std::vector<float>{b}, {1});
    return to_host<float>(ctx, add_relu(ctx, left, right).value)[0];
  };
  CHECK(value(kInfinity, -5.0f) == kInfinity);
  CHECK(value(-kInfinity, 5.0f) == 0.0f);
  CHECK(std::isnan(value(kInfinity, -kInfinity)));
}

TEST_CASE("add_relu keeps its result only, its twin the sum, and each records its nodes", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = zeros(ctx, {8, 6}, Dtype::f32);
  Tape fused(ctx), composed(ctx);
  add_relu(ctx, fused.leaf(x), fused.leaf(x));
  CHECK(fused.node_names() == std::vector<std::string>{"add_relu"});
  CHECK(fused.saved_bytes() == x.nbytes());
  add_relu_composed(ctx, composed.leaf(x), composed.leaf(x));
  CHECK(composed.node_names() == std::vector<std::string>{"add", "relu"});
  CHECK(composed.saved_bytes() == x.nbytes());
}

TEST_CASE("add_relu hands one gradient to both operands", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var a = tape.leaf(zeros(ctx, {4}, Dtype::f32)), b = tape.leaf(zeros(ctx, {4}, Dtype::f32));
  const Var y = add_relu(ctx, a, b);
  const Tensor dy = from_host(ctx, std::vector<float>{1, 2, 3, 4}, {4});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(tape.grad(a).shares_storage(tape.grad(b)));
}

TEST_CASE("add_relu refuses operands that differ", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = zeros(ctx, {2, 3}, Dtype::f32);
  CHECK_THROWS_WITH(add_relu(ctx, x, zeros(ctx, {3}, Dtype::f32)),
                    "add_relu: operands must agree in shape and dtype; got f32 (2, 3) and f32 (3)");
  CHECK_THROWS_WITH(
      add_relu_composed(ctx, x, zeros(ctx, {2, 3}, Dtype::bf16)),
      "add_relu: operands must agree in shape and dtype; got f32 (2, 3) and bf16 (2, 3)");
  CHECK_THROWS_WITH(add_relu(ctx, x, Var()),
                    "add_relu: both operands must be given; got an undefined one");
}
