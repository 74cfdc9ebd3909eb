#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "core/error.h"
#include "core/random.h"
#include "ops/embedding/embedding.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

struct Result {
  std::vector<double> y, dweight;
};

// Weight [rows, columns] and dy with fixed values, the same on every device.
Result run(const Context& ctx, Dtype dtype, int64_t rows, int64_t columns,
           const std::vector<int32_t>& ids) {
  const RandomStream stream = random_stream(9, 0, 0);
  const auto values = [&](int64_t number, const Shape& shape) {
    std::vector<float> x(numel_of(shape));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(stream.uniform(number, i)) - 0.5f;
    }
    // Rounded to bf16 in any dtype.
    return cast(ctx, cast(ctx, from_host(ctx, x, shape), Dtype::bf16), dtype);
  };
  const int64_t n = static_cast<int64_t>(ids.size());
  Tape tape(ctx);
  const Var weight = tape.leaf(values(0, {rows, columns}));
  const Var y = embedding(ctx, weight, from_host(ctx, ids, {n}));
  const Tensor dy = values(1, {n, columns});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return {to_host<double>(ctx, cast(ctx, y.value, Dtype::f64)),
          to_host<double>(ctx, cast(ctx, tape.grad(weight), Dtype::f64))};
}

// Small ids come often, as words do.
std::vector<int32_t> frequent_ids(int64_t count, int64_t rows) {
  const RandomStream stream = random_stream(2, 0, 0);
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    const double rank = std::pow(static_cast<double>(rows), stream.uniform(0, i));
    ids[i] = static_cast<int32_t>(std::min<double>(rank, static_cast<double>(rows)) - 1.0);
  }
  return ids;
}

std::vector<double> gradient_of_ones(Dtype dtype, int64_t rows, int64_t columns,
                                     const std::vector<int32_t>& ids) {
  const Context& ctx = test_cuda_context();
  Tape tape(ctx);
  const Var weight = tape.leaf(zeros(ctx, {rows, columns}, dtype));
  const int64_t n = static_cast<int64_t>(ids.size());
  const Var y = embedding(ctx, weight, from_host(ctx, ids, {n}));
  Tensor dy = empty_like(ctx, y.value);
  fill(ctx, dy, 1.0);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return to_host<double>(ctx, cast(ctx, tape.grad(weight), Dtype::f64));
}

}  // namespace

TEST_CASE("the embedding gradient on the GPU adds up repeated ids exactly", "[cuda]") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    CHECK(gradient_of_ones(dtype, 4, 1, {1, 3, 1}) == std::vector<double>{0, 2, 0, 1});
    for (int64_t columns : {1, 64}) {
      const std::vector<double> repeated =
          gradient_of_ones(dtype, 5, columns, std::vector<int32_t>(65536, 3));
      for (int64_t i = 0; i < 5 * columns; ++i) {
        REQUIRE(repeated[i] == (i / columns == 3 ? 65536.0 : 0.0));
      }
    }
    std::vector<int32_t> different(1000);
    std::iota(different.rbegin(), different.rend(), 0);
    CHECK(gradient_of_ones(dtype, 1000, 8, different) == std::vector<double>(8000, 1.0));
  }
}

TEST_CASE("pieces of every length at every place of a window add up on the GPU", "[cuda]") {
  std::vector<int32_t> ids;
  std::vector<double> expected;
  for (int32_t id = 0; id < 120; ++id) {
    const int32_t count = id * 37 % 101;  // 0 to 100 rows
    ids.insert(ids.end(), count, id);
    expected.push_back(count);
  }
  CHECK(gradient_of_ones(Dtype::f32, 120, 1, ids) == expected);
}

TEST_CASE("embedding on the GPU equals the oracle", "[cuda]") {
  struct Sizes {
    int64_t rows, columns, ids;
  };
  for (const Sizes& s : {Sizes{50304, 768, 32768}, Sizes{1000, 31, 5000}, Sizes{7, 264, 4097}}) {
    const std::vector<int32_t> ids = frequent_ids(s.ids, s.rows);
    const Result expected = run(cpu_context(), Dtype::f64, s.rows, s.columns, ids);
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      INFO(dtype << ", table " << s.rows << " x " << s.columns);
      const Result result = run(test_cuda_context(), dtype, s.rows, s.columns, ids);
      CHECK(result.y == expected.y);
      CHECK(relative_difference(result.dweight, expected.dweight) <= tolerance(Dtype::f32, s.ids));
      CHECK(run(test_cuda_context(), dtype, s.rows, s.columns, ids).dweight == result.dweight);
    }
  }
}

TEST_CASE("the embedding gradient on the GPU adds to what a parameter holds", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Parameter weight;
    weight.shape = {3, 16};
    weight.value = zeros(ctx, weight.shape, dtype);
    for (int pass = 1; pass <= 2; ++pass) {
      Tape tape(ctx);
      std::vector<int32_t> ids(300, 1);
      ids.push_back(2);
      const Var y = embedding(ctx, tape.parameter(weight), from_host(ctx, ids, {301}));
      Tensor dy = empty_like(ctx, y.value);
      fill(ctx, dy, 1.0);
      tape.backward(std::span(&y, 1), std::span(&dy, 1));
      const std::vector<float> sums = to_host<float>(ctx, weight.grad);
      const float p = static_cast<float>(pass);
      for (int i = 0; i < 48; ++i) CHECK(sums[i] == (i < 16 ? 0.0f : i < 32 ? 300.0f * p : p));
    }
  }
}

TEST_CASE("illegal ids on the GPU are reported and not followed", "[cuda]") {
  const Context& ctx = test_cuda_context();
  ctx.queue->synchronize();
  for (int32_t bad : {-1, 4, -2147483647 - 1, 2147483647}) {
    Tape tape(ctx);
    const Var weight = tape.leaf(zeros(ctx, {4, 8}, Dtype::f32));
    const Var y = embedding(ctx, weight, from_host(ctx, std::vector<int32_t>{0, bad, 3}, {3}));
    Tensor dy = empty_like(ctx, y.value);
    fill(ctx, dy, 1.0);
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    CHECK_THROWS_WITH(ctx.queue->synchronize(), "embedding: ids must lie in [0, 4); got " +
                                                    std::to_string(bad) + " at position 1");
    const std::vector<float> dweight = to_host<float>(ctx, tape.grad(weight));
    for (int i = 0; i < 32; ++i) CHECK(dweight[i] == (i < 8 || i >= 24 ? 1.0f : 0.0f));
  }
}

TEST_CASE("embedding of no ids on the GPU is empty and has gradient zero", "[cuda]") {
  CHECK(gradient_of_ones(Dtype::f32, 3, 2, {}) == std::vector<double>(6, 0.0));
}
