#include "ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

struct Result {
  double loss;
  int64_t count;
  std::vector<float> dlogits;
};

Result run(const Context& ctx, const Tensor& logits, const std::vector<int32_t>& targets,
           int64_t vocab_size = 0) {
  Tape tape(ctx);
  const Var x = tape.leaf(logits);
  const Tensor ids = from_host(ctx, targets, {static_cast<int64_t>(targets.size())});
  const Loss loss = cross_entropy(ctx, x, ids, vocab_size);
  tape.backward(loss.sum);
  return {to_host<float>(ctx, loss.sum.value)[0], to_host<int64_t>(ctx, loss.count)[0],
          to_host<float>(ctx, tape.grad(x))};
}

Result run_row(const std::vector<float>& logits, int32_t target) {
  const Context ctx = cpu_context(1);
  return run(ctx, from_host(ctx, logits, {1, static_cast<int64_t>(logits.size())}), {target});
}

bool close(double a, double b, double limit) {
  return std::abs(a - b) <= limit;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("cross entropy cases", "[ops]") {
  check_op_cases("cross_entropy");
}

TEST_CASE("cross entropy of large logits loses nothing in f32", "[ops]") {
  const std::vector<float> logits = {1e7f, 1e7f + 1, 1e7f + 2};
  CHECK(close(run_row(logits, 0).loss, 2.407606, 1e-5));
  CHECK(close(run_row(logits, 1).loss, 1.407606, 1e-5));
  CHECK(close(run_row(logits, 2).loss, 0.407606, 1e-5));
  const Result equal = run_row({1e8f, 1e8f}, 1);
  CHECK(close(equal.loss, 0.693147, 1e-6));
  CHECK(close(equal.dlogits[0], 0.5, 1e-6));
  CHECK(close(equal.dlogits[1], -0.5, 1e-6));
}

TEST_CASE("cross entropy of far apart and of infinite logits has no NaN", "[ops]") {
  const Result apart = run_row({1e4f, -1e4f}, 0);
  CHECK(apart.loss == 0.0);
  CHECK(apart.dlogits == std::vector<float>{0, 0});
  const Result wrong = run_row({1e4f, -1e4f}, 1);
  CHECK(wrong.loss == 2e4);
  CHECK(wrong.dlogits == std::vector<float>{1, -1});
  const Result blocked = run_row({0, -kInfinity, 1}, 2);
  CHECK(close(blocked.loss, std::log(1 + std::exp(-1.0)), 1e-6));
  CHECK(blocked.dlogits[1] == 0.0f);
  CHECK(close(blocked.dlogits[0], 1 / (1 + std::exp(1.0)), 1e-6));
}

TEST_CASE("cross entropy of ignored targets only is zero with zero gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  Tensor logits = empty(ctx, {5, 10}, Dtype::f32);
  fill(ctx, logits, 3.0);
  const Result result = run(ctx, logits, std::vector<int32_t>(5, -100));
  CHECK(result.loss == 0.0);
  CHECK(result.count == 0);
  CHECK(result.dlogits == std::vector<float>(50, 0.0f));
}

TEST_CASE("ignored targets add nothing to the cross entropy", "[ops]") {
  const Context ctx = cpu_context(1);
  const Result result = run(ctx, zeros(ctx, {5, 10}, Dtype::f32), {3, -100, 7, -100, 1});
  CHECK(result.count == 3);
  CHECK(close(result.loss, 3 * std::log(10.0), 1e-6));
  for (int row = 0; row < 5; ++row) {
    for (int v = 0; v < 10; ++v) {
      const bool ignored = row == 1 || row == 3;
      const bool target = (row == 0 && v == 3) || (row == 2 && v == 7) || (row == 4 && v == 1);
      const double expected = ignored ? 0.0 : target ? -0.9 : 0.1;
      CHECK(close(result.dlogits[row * 10 + v], expected, ignored ? 0.0 : 1e-7));
    }
  }
}

TEST_CASE("cross entropy refuses illegal targets, naming value and position", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor logits = zeros(ctx, {5, 10}, Dtype::f32);
  CHECK_THROWS_WITH(
      run(ctx, logits, {0, 1, -4, 3, 4}),
      "cross_entropy: targets must lie in [0, 10) or be the ignore index -100; got -4 at "
      "position 2");
  CHECK_THROWS_WITH(
      run(ctx, logits, {0, 1, 2, 3, 10}),
      "cross_entropy: targets must lie in [0, 10) or be the ignore index -100; got 10 at "
      "position 4");
  CHECK_THROWS_WITH(
      run(ctx, logits, {0, 1, 2, 3, 7}, 7),
      "cross_entropy: targets must lie in [0, 7) or be the ignore index -100; got 7 at position 4");
  CHECK_THROWS_WITH(run(ctx, logits, {0, 1}),
                    "cross_entropy: targets must have shape (5), one a row; got (2)");
  CHECK_THROWS_WITH(run(ctx, logits, {0, 1, 2, 3, 4}, 11),
                    "cross_entropy: vocab_size must be in [0, 10], the number of columns; got 11");
}

TEST_CASE("cross entropy of zero logits is ln V for any V, padded or not", "[ops]") {
  const Context ctx = cpu_context(2);
  const std::vector<std::pair<int64_t, double>> expected = {
      {65, 4.174387}, {257, 5.549076}, {50257, 10.824905}};
  for (const auto& [vocab, ln_vocab] : expected) {
    INFO("V " << vocab);
    const int32_t last = static_cast<int32_t>(vocab) - 1;
    const Result exact = run(ctx, zeros(ctx, {2, vocab}, Dtype::f32), {0, last});
    CHECK(close(exact.loss, 2 * ln_vocab, 2e-6));

    const int64_t columns = (vocab + 127) / 128 * 128;
    const Tensor padded = zeros(ctx, {2, columns}, Dtype::f32);
    fill(ctx, padded.slice(1, vocab, columns - vocab), std::nan(""));
    const Result result = run(ctx, padded, {0, last}, vocab);
    CHECK(result.loss == exact.loss);
    for (int64_t v = vocab; v < columns; ++v) REQUIRE(result.dlogits[v] == 0.0f);
    CHECK(close(result.dlogits[1], 1.0 / static_cast<double>(vocab), 1e-8));
    CHECK(close(result.dlogits[columns + last], 1.0 / static_cast<double>(vocab) - 1.0, 1e-6));
  }
}

TEST_CASE("a padded column is no legal target unless columns count as classes", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor logits = zeros(ctx, {1, 128}, Dtype::f32);
  CHECK_THROWS_AS(run(ctx, logits, {65}, 65), Error);
  CHECK(close(run(ctx, logits, {65}).loss, 4.852030, 1e-6));
}

TEST_CASE("an ignore index among the classes is ignored", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor targets = from_host(ctx, std::vector<int32_t>{0, 2}, {2});
  const Loss loss = cross_entropy(ctx, Var(zeros(ctx, {2, 4}, Dtype::f64)), targets, 0, 0);
  CHECK(to_host<int64_t>(ctx, loss.count) == std::vector<int64_t>{1});
  CHECK(close(to_host<double>(ctx, loss.sum.value)[0], std::log(4.0), 1e-15));
}

TEST_CASE("the upstream gradient scales the gradient of the logits", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(zeros(ctx, {1, 4}, Dtype::f64));
  const Loss loss = cross_entropy(ctx, x, from_host(ctx, std::vector<int32_t>{1}, {1}));
  const Tensor dsum = from_host(ctx, std::vector<double>{8.0}, {1});
  tape.backward(std::span(&loss.sum, 1), std::span(&dsum, 1));
  CHECK(to_host<double>(ctx, tape.grad(x)) == std::vector<double>{2, -6, 2, 2});
}

TEST_CASE("cross entropy of no rows is zero", "[ops]") {
  const Context ctx = cpu_context(1);
  const Result result = run(ctx, empty(ctx, {0, 7}, Dtype::f32), {});
  CHECK(result.loss == 0.0);
  CHECK(result.count == 0);
  CHECK(result.dlogits.empty());
}
