#include <cmath>
#include <limits>

#include "ops/softmax_run.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

using Result = RowResult;

Result run_row(Var (*function)(const Context&, const Var&), const std::vector<float>& row) {
  return run_row(cpu_context(1), function, row);
}

bool close(double a, double b) {
  return std::abs(a - b) <= tolerance(Dtype::f32) * std::max(1.0, std::abs(b));
}

}  // namespace

TEST_CASE("softmax cases", "[ops]") {
  check_op_cases("softmax");
}

TEST_CASE("softmax of logits far apart is exactly one and zero", "[ops]") {
  const Result r = run_row(softmax, {1e4f, -1e4f});
  CHECK(r.y == std::vector<float>{1.0f, 0.0f});
  CHECK(r.dx == std::vector<float>{0.0f, 0.0f});
}

TEST_CASE("an entry of minus infinity has probability and gradient zero", "[ops]") {
  const Result r = run_row(softmax, {0.0f, -kInfinity, 1.0f});
  const double p0 = 1.0 / (1.0 + std::exp(1.0)), p2 = 1.0 - p0;
  CHECK(close(r.y[0], p0));
  CHECK(r.y[1] == 0.0f);
  CHECK(close(r.y[2], p2));
  // p (dp - sum(dp p)) with dp = 1, 2, 3.
  const double sum = p0 + 3 * p2;
  CHECK(close(r.dx[0], p0 * (1 - sum)));
  CHECK(r.dx[1] == 0.0f);
  CHECK(close(r.dx[2], p2 * (3 - sum)));

  const Result logs = run_row(log_softmax, {0.0f, -kInfinity, 1.0f});
  CHECK(close(logs.y[0], std::log(p0)));
  CHECK(logs.y[1] == -kInfinity);
  CHECK(logs.dx[1] == 0.0f);
  CHECK(close(logs.dx[2], 3 - 6 * p2));
}

TEST_CASE("a row of only minus infinity gives zero and zero gradient", "[ops]") {
  for (size_t width : {1, 3, 70}) {
    check_row_of_minus_infinity(cpu_context(1), width);
  }
}

TEST_CASE("softmax passes a NaN on instead of hiding it", "[ops]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& row :
       {std::vector<float>{nan, nan}, {nan, -kInfinity}, {1, nan}}) {
    for (float p : run_row(softmax, row).y) CHECK(std::isnan(p));
  }
}

TEST_CASE("log_softmax of large logits keeps their differences", "[ops]") {
  const Result r = run_row(log_softmax, {1e7f, 1e7f + 1, 1e7f + 2});
  const double expected[] = {-2.407606, -1.407606, -0.407606};
  for (int i = 0; i < 3; ++i) {
    CHECK(std::abs(r.y[i] - expected[i]) < 1e-5);
    CHECK(close(r.dx[i], (i + 1) - 6 * std::exp(expected[i])));
  }
}

TEST_CASE("softmax of no rows has no rows", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(empty(ctx, {0, 5}, Dtype::f32));
  const Var y = softmax(ctx, x);
  CHECK(y.shape() == Shape{0, 5});
  const Tensor dy = empty(ctx, {0, 5}, Dtype::f32);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(tape.grad(x).shape() == Shape{0, 5});
}
