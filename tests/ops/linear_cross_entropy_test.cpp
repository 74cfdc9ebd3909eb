#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <cmath>

#include "core/copy.h"
#include "core/error.h"
#include "ops/zero_rows_checks.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

Tensor filled(const Context& ctx, const Shape& shape, double value) {
  Tensor result = empty(ctx, shape, Dtype::f32);
  fill(ctx, result, value);
  return result;
}

Tensor ids(const Context& ctx, const std::vector<int32_t>& values) {
  return from_host(ctx, values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("linear cross entropy cases", "[ops]") {
  check_op_cases("linear_cross_entropy");
}

TEST_CASE("linear cross entropy never holds the whole logits", "[ops]") {
  Context ctx = cpu_context(2);
  ctx.gemm = GemmBackend::library;                     // takes no scratch from the allocator
  const int64_t rows = 512, width = 4, vocab = 32768;  // a chunk is a quarter of the rows
  const int64_t whole = rows * vocab * int64_t{sizeof(float)};
  const Tensor targets = ids(ctx, std::vector<int32_t>(rows, 5));
  const auto peak_of_passes = [&](const auto& loss_of) {
    Tape tape(ctx);
    const Var x = tape.leaf(filled(ctx, {rows, width}, 0.5));
    const Var weight = tape.leaf(filled(ctx, {vocab, width}, 0.25));
    const int64_t before = ctx.allocator->current_bytes();
    ctx.allocator->reset_peak();
    const Loss loss = loss_of(x, weight);
    const int64_t forward = ctx.allocator->peak_bytes() - before;
    ctx.allocator->reset_peak();
    tape.backward(loss.sum);
    return std::pair(forward, ctx.allocator->peak_bytes() - before);
  };
  const auto [forward, backward] = peak_of_passes(
      [&](const Var& x, const Var& w) { return linear_cross_entropy(ctx, x, w, targets); });
  const int64_t gradients = (rows + vocab) * width * int64_t{sizeof(float)};
  const int64_t small = int64_t{1} << 16;  // losses, statistics, scalars
  CHECK(forward <= whole / 4 + small);
  CHECK(backward <= whole / 4 + gradients + small);
  const auto [composed_forward, composed_backward] =
      peak_of_passes([&](const Var& x, const Var& w) {
        return linear_cross_entropy_composed(ctx, x, w, targets);
      });
  CHECK(composed_forward >= 2 * whole);
  CHECK(composed_backward >= whole);
}

TEST_CASE("linear cross entropy of zero weights is ln V on every gemm backend", "[ops]") {
  Context ctx = cpu_context(2);
  const std::vector<std::pair<int64_t, double>> expected = {
      {65, 4.174387}, {257, 5.549076}, {50257, 10.824905}};
  for (GemmBackend backend : {GemmBackend::naive, GemmBackend::tiled, GemmBackend::library}) {
    ctx.gemm = backend;
    for (const auto& [vocab, ln_vocab] : expected) {
      INFO(name_of(backend) << ", V " << vocab);
      const int64_t padded = (vocab + 127) / 128 * 128;
      const Tensor table = zeros(ctx, {padded, 4}, Dtype::f32);
      fill(ctx, table.slice(0, vocab, padded - vocab), 1.0);  // would win if it took part
      Tape tape(ctx);
      const Var x = tape.leaf(filled(ctx, {2, 4}, 1.0)), weight = tape.leaf(table);
      const int32_t last = static_cast<int32_t>(vocab) - 1;
      const Loss loss = linear_cross_entropy(ctx, x, weight, ids(ctx, {0, last}), vocab);
      CHECK(std::abs(to_host<float>(ctx, loss.sum.value)[0] / 2 - ln_vocab) < 2e-6);
      tape.backward(loss.sum);
      const std::vector<float> dweight = to_host<float>(ctx, tape.grad(weight));
      for (int64_t i = vocab * 4; i < padded * 4; ++i) REQUIRE(dweight[i] == 0.0f);
      // Both rows are ones: the share of a class in 2 rows, less 1 for a target.
      CHECK(std::abs(dweight[4] - 2.0 / static_cast<double>(vocab)) < 1e-8);
      CHECK(std::abs(dweight[0] - (2.0 / static_cast<double>(vocab) - 1.0)) < 1e-6);
      CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>(8, 0.0f));
    }
  }
}

TEST_CASE("linear cross entropy with large logits loses nothing", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = filled(ctx, {1, 1}, 1e8), weight = filled(ctx, {2, 1}, 1.0);
  const Loss loss = linear_cross_entropy(ctx, x, weight, ids(ctx, {1}));
  CHECK(std::abs(to_host<float>(ctx, loss.sum.value)[0] - 0.693147) < 1e-6);
}

TEST_CASE("linear cross entropy of ignored or no rows has zero gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  for (int64_t rows : {5, 0}) {
    for (int i = 0; i < 3; ++i) filled(ctx, {10, 3}, 7.0);  // leaves dirty memory behind
    Tape tape(ctx);
    const Var x = tape.leaf(filled(ctx, {rows, 3}, 1.0));
    const Var weight = tape.leaf(filled(ctx, {10, 3}, 1.0));
    const Loss loss =
        linear_cross_entropy(ctx, x, weight, ids(ctx, std::vector<int32_t>(rows, -100)));
    CHECK(to_host<float>(ctx, loss.sum.value) == std::vector<float>{0.0f});
    CHECK(to_host<int64_t>(ctx, loss.count) == std::vector<int64_t>{0});
    tape.backward(loss.sum);
    CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>(rows * 3, 0.0f));
    CHECK(to_host<float>(ctx, tape.grad(weight)) == std::vector<float>(30, 0.0f));
  }
}

TEST_CASE("linear cross entropy counts and ignores as cross entropy does", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(filled(ctx, {5, 3}, 1.0));
  const Loss loss =
      linear_cross_entropy(ctx, x, Var(filled(ctx, {10, 3}, 0.0)), ids(ctx, {3, -100, 7, -100, 1}));
  CHECK(to_host<int64_t>(ctx, loss.count) == std::vector<int64_t>{3});
  CHECK(std::abs(to_host<float>(ctx, loss.sum.value)[0] - 3 * std::log(10.0)) < 1e-6);
}

TEST_CASE("linear cross entropy adds its chunks to the gradient a parameter holds", "[ops]") {
  const Context ctx = cpu_context(1);
  Parameter weight;
  weight.shape = {4, 1};
  weight.value = filled(ctx, {4, 1}, 0.0);
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape(ctx);
    const Tensor targets = ids(ctx, {0, 1, 1, 3, 0});
    const Loss loss = linear_cross_entropy(ctx, Var(filled(ctx, {5, 1}, 1.0)),
                                           tape.parameter(weight), targets, 0, kIgnoreIndex, 2);
    tape.backward(loss.sum);
    // Five quarters for each class, less the times it is the target.
    const float p = static_cast<float>(pass);
    CHECK(to_host<float>(ctx, weight.grad) ==
          std::vector<float>{-0.75f * p, -0.75f * p, 1.25f * p, 0.25f * p});
  }
}

TEST_CASE("linear cross entropy keeps the logits of a single chunk, as gradients", "[ops]") {
  const Context ctx = cpu_context(1);
  const auto saved_bytes = [&](int64_t chunk_rows) {
    Tape tape(ctx);
    const Var x = tape.leaf(filled(ctx, {6, 1}, 1.0)), weight = tape.leaf(filled(ctx, {100, 1}, 0));
    const Tensor targets = ids(ctx, {0, 1, 2, 3, 4, 5});
    linear_cross_entropy(ctx, x, weight, targets, 0, kIgnoreIndex, chunk_rows);
    return tape.saved_bytes();
  };
  CHECK(saved_bytes(6) - saved_bytes(5) == 6 * 100 * int64_t{sizeof(float)});
}

TEST_CASE("the upstream gradient scales the gradients of linear cross entropy", "[ops]") {
  const Context ctx = cpu_context(1);
  for (int64_t chunk_rows : {1, 2}) {
    Tape tape(ctx);
    const Var x = tape.leaf(filled(ctx, {2, 1}, 1.0)), weight = tape.leaf(filled(ctx, {4, 1}, 1.0));
    const Loss loss =
        linear_cross_entropy(ctx, x, weight, ids(ctx, {1, 1}), 0, kIgnoreIndex, chunk_rows);
    const Tensor dsum = filled(ctx, {1}, 8.0);
    tape.backward(std::span(&loss.sum, 1), std::span(&dsum, 1));
    CHECK(to_host<float>(ctx, tape.grad(weight)) == std::vector<float>{4, -12, 4, 4});
    CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>{0, 0});
  }
}

TEST_CASE("linear cross entropy computes the gradient of x alone for a frozen weight", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(filled(ctx, {1, 1}, 0.0));
  const Tensor weight = from_host(ctx, std::vector<float>{1, 2, 3, 4}, {4, 1});
  const Loss loss = linear_cross_entropy(ctx, x, Var(weight), ids(ctx, {3}));
  tape.backward(loss.sum);
  CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>{-1.5f});
}

TEST_CASE("zero rows behind a head change no bits and stay zero", "[ops]") {
  Context ctx = cpu_context(2);
  for (const GemmBackend backend : {GemmBackend::naive, GemmBackend::tiled}) {
    ctx.gemm = backend;
    check_zero_rows(ctx, 14);
  }
  CHECK(head_zero_rows(ctx, 50257) == 0);
}

TEST_CASE("linear cross entropy names what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var x(filled(ctx, {2, 3}, 0.0)), weight(filled(ctx, {5, 3}, 0.0));
  CHECK_THROWS_WITH(linear_cross_entropy(ctx, x, Var(filled(ctx, {5, 4}, 0.0)), ids(ctx, {0, 1})),
                    "linear_cross_entropy: inner sizes must agree; got x (2, 3) and weight (5, 4)");
  CHECK_THROWS_WITH(linear_cross_entropy(ctx, x, weight, ids(ctx, {0, 5})),
                    "linear_cross_entropy: targets must lie in [0, 5) or be the ignore index -100; "
                    "got 5 at position 1");
  CHECK_THROWS_WITH(linear_cross_entropy(ctx, x, weight, ids(ctx, {0, 1}), 0, kIgnoreIndex, 0, 2),
                    "with_rows_behind: 2 rows must lie behind (5, 3) in its storage; it has 60 "
                    "bytes");
  CHECK_THROWS_WITH(linear_cross_entropy(ctx, x, weight, ids(ctx, {0, 1}), 0, kIgnoreIndex, 0, -1),
                    "linear_cross_entropy: zero_rows must be 0 or more; got -1");
}
