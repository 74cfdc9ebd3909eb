#include "ops/embedding/embedding.h"

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

// The gradient of a weight [rows, 1] for the ids, with upstream gradient 1 everywhere.
std::vector<float> gradient_of_ids(int64_t rows, const std::vector<int32_t>& ids, int threads) {
  const Context ctx = cpu_context(threads);
  Tape tape(ctx);
  const Var weight = tape.leaf(zeros(ctx, {rows, 1}, Dtype::f32));
  const Shape shape = {static_cast<int64_t>(ids.size())};
  const Var y = embedding(ctx, weight, from_host(ctx, ids, shape));
  Tensor dy = empty_like(ctx, y.value);
  fill(ctx, dy, 1.0);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return to_host<float>(ctx, tape.grad(weight));
}

}  // namespace

TEST_CASE("embedding cases", "[ops]") {
  check_op_cases("embedding");
}

TEST_CASE("embedding picks rows in the shape of the ids", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor weight = from_host(ctx, std::vector<float>{0, 1, 10, 11, 20, 21}, {3, 2});
  const Tensor ids = from_host(ctx, std::vector<int32_t>{2, 0, 2, 1}, {2, 2});
  const Var y = embedding(ctx, weight, ids);
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(to_host<float>(ctx, y.value) == std::vector<float>{20, 21, 0, 1, 20, 21, 10, 11});
  const Var transposed = embedding(ctx, weight, ids.transpose(0, 1));
  CHECK(to_host<float>(ctx, transposed.value) == std::vector<float>{20, 21, 20, 21, 0, 1, 10, 11});
}

TEST_CASE("the embedding gradient adds up repeated ids and is zero elsewhere", "[ops]") {
  CHECK(gradient_of_ids(4, {1, 3, 1}, 1) == std::vector<float>{0, 2, 0, 1});
  for (int threads : {1, 2, 8}) {
    const std::vector<float> repeated = gradient_of_ids(5, std::vector<int32_t>(65536, 3), threads);
    CHECK(repeated == std::vector<float>{0, 0, 0, 65536, 0});
  }
  CHECK(gradient_of_ids(5, {4, 0, 2, 1, 3}, 1) == std::vector<float>{1, 1, 1, 1, 1});
}

TEST_CASE("the embedding gradient adds to what a parameter holds", "[ops]") {
  const Context ctx = cpu_context(1);
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Parameter weight;
    weight.shape = {3, 2};
    weight.value = zeros(ctx, {3, 2}, dtype);
    for (int pass = 1; pass <= 2; ++pass) {
      Tape tape(ctx);
      const Tensor ids = from_host(ctx, std::vector<int32_t>(300, 1), {300});
      const Var y = embedding(ctx, tape.parameter(weight), ids);
      Tensor dy = empty_like(ctx, y.value);
      fill(ctx, dy, 1.0);
      tape.backward(std::span(&y, 1), std::span(&dy, 1));
      const float sum = 300.0f * static_cast<float>(pass);
      CHECK(to_host<float>(ctx, weight.grad) == std::vector<float>{0, 0, sum, sum, 0, 0});
    }
  }
}

TEST_CASE("embedding refuses ids outside the table, naming id, position and size", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var weight(zeros(ctx, {4, 2}, Dtype::f32));
  const auto look_up = [&](const std::vector<int32_t>& ids) {
    return embedding(ctx, weight, from_host(ctx, ids, {static_cast<int64_t>(ids.size())}));
  };
  CHECK_THROWS_WITH(look_up({0, 3, 4}), "embedding: ids must lie in [0, 4); got 4 at position 2");
  CHECK_THROWS_WITH(look_up({-1, 3}), "embedding: ids must lie in [0, 4); got -1 at position 0");
  CHECK_NOTHROW(look_up({0, 3}));
  CHECK_THROWS_WITH(embedding(ctx, weight, zeros(ctx, {2}, Dtype::i64)),
                    "embedding: ids must be i32; got i64");
}

TEST_CASE("embedding of no ids is empty and has gradient zero", "[ops]") {
  CHECK(gradient_of_ids(3, {}, 1) == std::vector<float>{0, 0, 0});
}
