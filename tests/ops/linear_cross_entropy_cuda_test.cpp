#include <cmath>

#include "core/copy.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/zero_rows_checks.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/gpu.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

Tensor filled(const Context& ctx, const Shape& shape, Dtype dtype, double value) {
  Tensor result = empty(ctx, shape, dtype);
  fill(ctx, result, value);
  return result;
}

Tensor ids(const Context& ctx, const std::vector<int32_t>& values) {
  return from_host(ctx, values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("linear cross entropy of zero weights on the GPU is ln V", "[cuda]") {
  Context ctx = test_cuda_context();
  const std::vector<std::pair<int64_t, double>> expected = {
      {65, 4.174387}, {257, 5.549076}, {50257, 10.824905}};
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (GemmBackend backend : {GemmBackend::naive, GemmBackend::tiled, GemmBackend::library}) {
      ctx.gemm = backend;
      for (const auto& [vocab, ln_vocab] : expected) {
        INFO(name_of(backend) << ", V " << vocab << ", " << dtype);
        const int64_t padded = (vocab + 127) / 128 * 128;
        const Tensor table = zeros(ctx, {padded, 4}, dtype);
        fill(ctx, table.slice(0, vocab, padded - vocab), 1.0);  // would win if it took part
        Tape tape(ctx);
        const Var x = tape.leaf(filled(ctx, {2, 4}, dtype, 1.0)), weight = tape.leaf(table);
        const int32_t last = static_cast<int32_t>(vocab) - 1;
        const Loss loss = linear_cross_entropy(ctx, x, weight, ids(ctx, {0, last}), vocab);
        CHECK(std::abs(to_host<float>(ctx, loss.sum.value)[0] / 2 - ln_vocab) < 2e-6);
        tape.backward(loss.sum);
        const std::vector<double> dweight = as_doubles(ctx, tape.grad(weight));
        for (int64_t i = vocab * 4; i < padded * 4; ++i) REQUIRE(dweight[i] == 0.0);
        // Both rows are ones: the share of a class in 2 rows, less 1 for a target.
        const double share = 2.0 / static_cast<double>(vocab), unit = epsilon_of(dtype);
        CHECK(std::abs(dweight[4] - share) <= unit * share);
        CHECK(std::abs(dweight[0] - (share - 1.0)) <= unit);
        CHECK(as_doubles(ctx, tape.grad(x)) == std::vector<double>(8, 0.0));
      }
    }
  }
}

TEST_CASE("one chunk and several give the same gradients on the GPU", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Context cpu = cpu_context();
  const int64_t rows = 67, width = 24, vocab = 300;
  const auto gradients = [&](const Context& at, Dtype dtype, int64_t chunk_rows) {
    std::vector<float> values((rows + vocab) * width);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const Tensor both =
        cast(at, cast(at, from_host(at, values, {rows + vocab, width}), Dtype::bf16), dtype);
    std::vector<int32_t> targets(rows);
    for (int64_t i = 0; i < rows; ++i) targets[i] = i % 5 == 0 ? kIgnoreIndex : i * 3;
    Tape tape(at);
    const Var x = tape.leaf(both.slice(0, 0, rows)), w = tape.leaf(both.slice(0, rows, vocab));
    const Loss loss = linear_cross_entropy(at, x, w, ids(at, targets), 0, kIgnoreIndex, chunk_rows);
    tape.backward(loss.sum);
    std::vector<double> all = as_doubles(at, tape.grad(x));
    const std::vector<double> dw = as_doubles(at, tape.grad(w));
    all.insert(all.end(), dw.begin(), dw.end());
    all.push_back(as_doubles(at, loss.sum.value)[0] / static_cast<double>(rows));
    return all;
  };
  const std::vector<double> expected = gradients(cpu, Dtype::f64, 0);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const double limit = dtype == Dtype::f32 ? 1e-5 : 4 * epsilon_of(dtype);
    for (int64_t chunk_rows : {0, 67, 66, 10}) {
      INFO(dtype << ", chunks of " << chunk_rows);
      CHECK(relative_difference(gradients(ctx, dtype, chunk_rows), expected) <= limit);
    }
  }
}

// 50 classes and 6 zero rows are as many columns as a copy is given.
TEST_CASE("zero rows behind a head on the GPU change no bits and stay zero", "[cuda]") {
  const Context& ctx = test_cuda_context();
  CHECK(head_zero_rows(ctx, 50) == 6);
  CHECK(head_zero_rows(ctx, 50257) == 47);
  CHECK(head_zero_rows(ctx, 50304) == 0);
  check_zero_rows(ctx, 6);
}
