#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "core/random.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Result {
  double loss = 0.0;
  double loss_alone = 0.0;  // where no gradient is wanted
  int64_t count = 0;
  std::vector<double> dlogits;
};

// Logits [targets, columns] of the given dtype, summed loss and gradient.
Result run(const Context& ctx, Dtype dtype, const std::vector<float>& logits,
           const std::vector<int32_t>& targets, int64_t vocab_size = 0) {
  const int64_t rows = static_cast<int64_t>(targets.size());
  const int64_t columns = static_cast<int64_t>(logits.size()) / rows;
  Tape tape(ctx);
  const Var x = tape.leaf(cast(ctx, from_host(ctx, logits, {rows, columns}), dtype));
  const Loss loss = cross_entropy(ctx, x, from_host(ctx, targets, {rows}), vocab_size);
  const Loss alone = cross_entropy(ctx, x.value, from_host(ctx, targets, {rows}), vocab_size);
  CHECK(to_host<int64_t>(ctx, alone.count) == to_host<int64_t>(ctx, loss.count));
  tape.backward(loss.sum);
  return {to_host<double>(ctx, cast(ctx, loss.sum.value, Dtype::f64))[0],
          to_host<double>(ctx, cast(ctx, alone.sum.value, Dtype::f64))[0],
          to_host<int64_t>(ctx, loss.count)[0],
          to_host<double>(ctx, cast(ctx, tape.grad(x), Dtype::f64))};
}

// The same logits, rounded to the dtype, in f64 on the CPU.
Result oracle(Dtype dtype, const std::vector<float>& logits, const std::vector<int32_t>& targets,
              int64_t vocab_size = 0) {
  const Context ctx = cpu_context();
  const int64_t n = static_cast<int64_t>(logits.size());
  const Tensor rounded = cast(ctx, from_host(ctx, logits, {n}), dtype);
  return run(ctx, Dtype::f64, to_host<float>(ctx, cast(ctx, rounded, Dtype::f32)), targets,
             vocab_size);
}

std::vector<float> random_logits(int64_t count, float largest) {
  const RandomStream stream = random_stream(5, 0, 0);
  std::vector<float> logits(count);
  for (int64_t i = 0; i < count; ++i) {
    logits[i] = largest * (2.0f * static_cast<float>(stream.uniform(0, i)) - 1.0f);
  }
  return logits;
}

void check_close(const Result& result, const Result& expected, Dtype dtype, int64_t columns) {
  // Losses are summed in f32 also for bf16 logits.
  for (double loss : {result.loss, result.loss_alone}) {
    CHECK(std::abs(loss - expected.loss) <=
          tolerance(Dtype::f32, columns) * std::max(1.0, std::abs(expected.loss)));
  }
  CHECK(result.count == expected.count);
  CHECK(relative_difference(result.dlogits, expected.dlogits) <= tolerance(dtype, columns));
}

}  // namespace

TEST_CASE("cross entropy on the GPU equals the oracle for rows of any length", "[cuda]") {
  // Rows in registers, in half and all of the shared memory, and beyond it; aligned or not.
  for (int64_t columns : {2, 31, 512, 1000, 1024, 1032, 2048, 2056, 4096, 4104, 16384, 16385, 50257,
                          50304, 151936, 400000}) {
    const int32_t last = static_cast<int32_t>(columns) - 1;
    const std::vector<float> logits = random_logits(3 * columns, 8.0f);
    const std::vector<int32_t> targets = {last, 0, last / 2};
    for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      INFO(columns << " columns, " << dtype);
      check_close(run(test_cuda_context(), dtype, logits, targets), oracle(dtype, logits, targets),
                  dtype, columns);
    }
  }
}

TEST_CASE("cross entropy on the GPU of more rows than its blocks take at once", "[cuda]") {
  // With padding or without, and rows at odd addresses.
  struct Rows {
    int64_t rows, columns, vocab;
  };
  for (const Rows& r : {Rows{9001, 72, 65}, Rows{2500, 1000, 1000}, Rows{4777, 2048, 2041},
                        Rows{2501, 4096, 4096}, Rows{2500, 4096, 3001}, Rows{2500, 1025, 1025}}) {
    const std::vector<float> logits = random_logits(r.rows * r.columns, 8.0f);
    std::vector<int32_t> targets(r.rows);
    for (int64_t i = 0; i < r.rows; ++i) {
      targets[i] = i % 7 == 3 ? kIgnoreIndex : static_cast<int32_t>(i * 911 % r.vocab);
    }
    for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      INFO(r.rows << " x " << r.columns << ", " << r.vocab << " classes, " << dtype);
      const Result result = run(test_cuda_context(), dtype, logits, targets, r.vocab);
      check_close(result, oracle(dtype, logits, targets, r.vocab), dtype, r.columns);
      const Result again = run(test_cuda_context(), dtype, logits, targets, r.vocab);
      CHECK(again.loss == result.loss);
      CHECK(again.loss_alone == result.loss_alone);
      CHECK(again.dlogits == result.dlogits);
    }
  }
}

TEST_CASE("the totals of many blocks of losses on the GPU count each row once", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (int64_t rows : {1, 1023, 1024, 1025, 131072, 400001}) {
    INFO(rows << " rows");
    std::vector<int32_t> targets(rows, 1);
    targets[rows / 2] = kIgnoreIndex;
    const Tensor logits = zeros(ctx, {rows, 2}, Dtype::f32);
    const Loss loss = cross_entropy(ctx, logits, from_host(ctx, targets, {rows}));
    const double each = static_cast<double>(std::log(2.0f));
    const double expected = each * static_cast<double>(rows - 1);
    CHECK(to_host<int64_t>(ctx, loss.count) == std::vector<int64_t>{rows - 1});
    CHECK(std::abs(to_host<float>(ctx, loss.sum.value)[0] - expected) <=
          tolerance(Dtype::f32) * expected);
  }
}

TEST_CASE("cross entropy on the GPU of logits of thousands loses nothing", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::vector<float> logits = random_logits(4 * 1000, 5000.0f);
    const std::vector<int32_t> targets = {0, 10, 100, 999};
    check_close(run(ctx, dtype, logits, targets), oracle(dtype, logits, targets), dtype, 1000);
    const Result equal = run(ctx, dtype, {1e8f, 1e8f}, {1});
    CHECK(std::abs(equal.loss - std::log(2.0)) < 1e-6);
    CHECK(equal.dlogits == std::vector<double>{0.5, -0.5});
  }
  const Result large = run(ctx, Dtype::f32, {1e7f, 1e7f + 1, 1e7f + 2}, {0});
  CHECK(std::abs(large.loss - 2.407606) < 1e-5);
}

TEST_CASE("cross entropy on the GPU of far apart and of infinite logits has no NaN", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype);
    const Result apart = run(ctx, dtype, {16384, -16384}, {0});
    CHECK(apart.loss == 0.0);
    CHECK(apart.loss_alone == 0.0);
    CHECK(apart.dlogits == std::vector<double>{0, 0});
    const Result wrong = run(ctx, dtype, {16384, -16384}, {1});
    CHECK(wrong.loss == 32768.0);
    CHECK(wrong.loss_alone == 32768.0);
    CHECK(wrong.dlogits == std::vector<double>{1, -1});
    // A whole first pack of -infinity.
    std::vector<float> blocked(40, -kInfinity);
    blocked[33] = 0.0f;
    blocked[38] = 1.0f;
    const Result result = run(ctx, dtype, blocked, {38});
    CHECK(std::abs(result.loss - std::log(1 + std::exp(-1.0))) < 1e-6);
    CHECK(std::abs(result.loss_alone - std::log(1 + std::exp(-1.0))) < 1e-6);
    CHECK(std::abs(result.dlogits[33] - 1 / (1 + std::exp(1.0))) < epsilon_of(dtype) + 1e-7);
    for (int i = 0; i < 33; ++i) REQUIRE(result.dlogits[i] == 0.0);
  }
}

TEST_CASE("cross entropy on the GPU propagates what is no number", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Result result = run(ctx, Dtype::f32, {0, bad, 1, 0, 0, 0}, {0, 1});
    CHECK(std::isnan(result.loss));
    CHECK(std::isnan(result.loss_alone));
    CHECK(std::isnan(run(ctx, Dtype::f32, {0, bad, 1, 0, 0, 0, 0, 0}, {0, 1}).loss_alone));
    CHECK(std::isnan(result.dlogits[0]));
    CHECK(std::abs(result.dlogits[3] - 1.0 / 3) < 1e-6);  // the other row is as it should be
  }
  CHECK(std::isnan(run(ctx, Dtype::f32, {-kInfinity, -kInfinity}, {0}).loss));
  const std::vector<float> none(8, -kInfinity);
  CHECK(std::isnan(run(ctx, Dtype::f32, none, {0}).loss_alone));
}

TEST_CASE("ignored targets on the GPU have gradient zero", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (int64_t columns : {10, 50304}) {
    const std::vector<float> logits = random_logits(5 * columns, 3.0f);
    const Result none = run(ctx, Dtype::bf16, logits, std::vector<int32_t>(5, kIgnoreIndex));
    CHECK(none.loss == 0.0);
    CHECK(none.loss_alone == 0.0);
    CHECK(none.count == 0);
    CHECK(none.dlogits == std::vector<double>(5 * columns, 0.0));
    const std::vector<int32_t> targets = {3, kIgnoreIndex, 7, kIgnoreIndex, 1};
    const Result some = run(ctx, Dtype::f32, logits, targets);
    check_close(some, oracle(Dtype::f32, logits, targets), Dtype::f32, columns);
    for (int64_t i = columns; i < 2 * columns; ++i) REQUIRE(some.dlogits[i] == 0.0);
  }
}

TEST_CASE("padded columns on the GPU are not read and have gradient zero", "[cuda]") {
  const std::vector<std::pair<int64_t, double>> expected = {
      {65, 4.174387}, {257, 5.549076}, {50257, 10.824905}, {151670, 11.929462}};
  for (const auto& [vocab, ln_vocab] : expected) {
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      INFO("V " << vocab << ", " << dtype);
      const int64_t columns = (vocab + 127) / 128 * 128;
      std::vector<float> logits(2 * columns, 0.0f);
      for (int64_t row : {0, 1}) {
        for (int64_t v = vocab; v < columns; ++v) logits[row * columns + v] = std::nanf("");
      }
      const int32_t last = static_cast<int32_t>(vocab) - 1;
      const Result result = run(test_cuda_context(), dtype, logits, {0, last}, vocab);
      CHECK(std::abs(result.loss - 2 * ln_vocab) < 4e-6);
      CHECK(std::abs(result.loss_alone - 2 * ln_vocab) < 4e-6);
      for (int64_t v = vocab; v < columns; ++v) {
        REQUIRE(result.dlogits[v] == 0.0);
        REQUIRE(result.dlogits[columns + v] == 0.0);
      }
      const double share = 1.0 / static_cast<double>(vocab);
      CHECK(std::abs(result.dlogits[1] - share) <= epsilon_of(dtype) * share);
      CHECK(std::abs(result.dlogits[columns + last] - (share - 1.0)) <= epsilon_of(dtype));
    }
  }
}

TEST_CASE("the upstream gradient scales the gradient of the logits on the GPU", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    Tape tape(ctx);
    const Var x = tape.leaf(zeros(ctx, {3, 4}, dtype));
    const Loss loss = cross_entropy(ctx, x, from_host(ctx, std::vector<int32_t>{1, -100, 3}, {3}));
    const Tensor dsum = cast(ctx, from_host(ctx, std::vector<double>{8.0}, {1}), loss.sum.dtype());
    tape.backward(std::span(&loss.sum, 1), std::span(&dsum, 1));
    CHECK(to_host<double>(ctx, cast(ctx, tape.grad(x), Dtype::f64)) ==
          std::vector<double>{2, -6, 2, 2, 0, 0, 0, 0, 2, 2, 2, -6});
  }
}

TEST_CASE("illegal targets on the GPU are reported and not followed", "[cuda]") {
  const Context& ctx = test_cuda_context();
  ctx.queue->synchronize();
  for (int32_t bad : {-4, 10, 1 << 30}) {
    const Tensor targets = from_host(ctx, std::vector<int32_t>{0, 1, bad}, {3});
    cross_entropy(ctx, Var(zeros(ctx, {3, 10}, Dtype::f32)), targets);
    CHECK_THROWS_WITH(ctx.queue->synchronize(),
                      "cross_entropy: targets must lie in [0, 10) or be the ignore index -100; "
                      "got " +
                          std::to_string(bad) + " at position 2");
  }
}

TEST_CASE("cross entropy of no rows on the GPU is zero", "[cuda]") {
  const Context& ctx = test_cuda_context();
  Tape tape(ctx);
  const Var x = tape.leaf(empty(ctx, {0, 7}, Dtype::f32));
  const Loss loss = cross_entropy(ctx, x, empty(ctx, {0}, Dtype::i32));
  tape.backward(loss.sum);
  CHECK(to_host<float>(ctx, loss.sum.value) == std::vector<float>{0.0f});
  CHECK(to_host<int64_t>(ctx, loss.count) == std::vector<int64_t>{0});
}

TEST_CASE("cross entropy on the GPU of more than 2^31 logits", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t rows = 65536, vocab = 50257;
  Tape tape(ctx);
  const Var x = tape.leaf(zeros(ctx, {rows, vocab}, Dtype::bf16), Dtype::bf16);
  const Loss loss = cross_entropy(ctx, x, zeros(ctx, {rows}, Dtype::i32));
  tape.backward(loss.sum);
  const double mean = to_host<float>(ctx, loss.sum.value)[0] / static_cast<double>(rows);
  CHECK(std::abs(mean - 10.8249) < 1e-4);
  const Tensor last = tape.grad(x).slice(0, rows - 1, 1);
  const std::vector<float> dlogits = to_host<float>(ctx, cast(ctx, last, Dtype::f32));
  const float share = 1.0f / static_cast<float>(vocab);
  CHECK(dlogits[0] == static_cast<float>(BFloat16(share - 1.0f)));
  for (int64_t v = 1; v < vocab; ++v) {
    REQUIRE(std::abs(dlogits[v] - share) <= epsilon_of(Dtype::bf16) * share);
  }
}
