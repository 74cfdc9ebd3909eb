#include "ops/swiglu/swiglu.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/arithmetic/arithmetic.h"
#include "support/catch.h"
#include "support/counting_allocator.h"
#include "support/op_tests.h"

using namespace xtrain;

TEST_CASE("swiglu cases", "[ops]") {
  check_op_cases("swiglu");
}

TEST_CASE("swiglu has the known values and gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  // Gates 0 and 2, ups 3 and 5.
  const Var x = tape.leaf(from_host(ctx, std::vector<double>{0, 2, 3, 5}, {1, 4}));
  const Var y = swiglu(ctx, x);
  REQUIRE(y.shape() == Shape{1, 2});
  const auto close = [](double a, double b) { return std::abs(a - b) < 1e-14; };
  // silu(2) = 2 / (1 + exp(-2)), silu'(0) = 1/2, silu'(2) = s (1 + 2 (1 - s)).
  const double s = 0.88079707797788243;
  CHECK(to_host<double>(ctx, y.value)[0] == 0.0);
  CHECK(close(to_host<double>(ctx, y.value)[1], 8.8079707797788243));
  const Tensor dy = from_host(ctx, std::vector<double>{1, 10}, {1, 2});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  const std::vector<double> dx = to_host<double>(ctx, tape.grad(x));
  CHECK(dx[0] == 1.5);
  CHECK(close(dx[1] / 50, s * (1 + 2 * (1 - s))));
  CHECK(dx[2] == 0.0);
  CHECK(close(dx[3] / 10, 2 * s));
}

TEST_CASE("swiglu keeps its input only and records one node", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(zeros(ctx, {8, 6}, Dtype::f32));
  const Var y = swiglu(ctx, x);
  CHECK(tape.node_names() == std::vector<std::string>{"swiglu"});
  CHECK(tape.saved_bytes() == x.value.nbytes());
}

TEST_CASE("swiglu writes its gradient over an input that nobody else holds", "[ops]") {
  Context ctx = cpu_context(1);
  const auto allocator = std::make_shared<CountingAllocator>();
  ctx.allocator = allocator;
  const Tensor dy = from_host(ctx, std::vector<double>{1, 10}, {1, 2});
  const auto run = [&](bool held) {
    Tape tape(ctx);
    const Var x = tape.leaf(from_host(ctx, std::vector<double>{0, 2, 3, 5}, {1, 4}));
    Var gate_up = scale(ctx, x, 0.5);
    const Var y = swiglu(ctx, gate_up);
    if (!held) gate_up = Var();
    const int64_t before = allocator->allocations();
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    const int64_t allocations = allocator->allocations() - before;
    if (held) {
      CHECK(to_host<double>(ctx, gate_up.value) == std::vector<double>{0, 1, 1.5, 2.5});
    }
    return std::pair(allocations, to_host<double>(ctx, tape.grad(x)));
  };
  const auto held = run(true), alone = run(false);
  CHECK(alone.first == held.first - 1);
  CHECK(alone.second == held.second);
}

TEST_CASE("swiglu of huge gates stays finite", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(from_host(ctx, std::vector<float>{-1e4f, 1e4f, 2.0f, 2.0f}, {1, 4}));
  const Var y = swiglu(ctx, x);
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>{0.0f, 2e4f});
  const Tensor dy = from_host(ctx, std::vector<float>{1.0f, 1.0f}, {1, 2});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>{0.0f, 2.0f, 0.0f, 1e4f});
}

TEST_CASE("swiglu needs an even last size", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var x(zeros(ctx, {2, 5}, Dtype::f32));
  const std::string message = "swiglu: the last size must be even (gate and up); got (2, 5)";
  CHECK_THROWS_WITH(swiglu(ctx, x), message);
  CHECK_THROWS_WITH(swiglu_composed(ctx, x), message);
}
