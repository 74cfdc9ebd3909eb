#include "autodiff/parameter.h"

#include "core/copy.h"
#include "support/catch.h"

using namespace xtrain;

TEST_CASE("matrices of a model that only infers lie by columns on a CPU", "[autodiff]") {
  const Context ctx = cpu_context(1);
  for (const bool with_grads : {true, false}) {
    ParameterSet set;
    Parameter& table = set.add("table", {5, 3}, ParameterKind::embedding, 0.0, 1.0);
    Parameter& matrix = set.add("matrix", {4, 3}, ParameterKind::matrix, 0.0, 1.0);
    Parameter& vector = set.add("vector", {4}, ParameterKind::vector, 1.0, 1.0);
    set.allocate(ctx, Dtype::f32, with_grads);
    CHECK(table.value.is_contiguous());
    CHECK(vector.value.is_contiguous());
    CHECK(matrix.value.shape() == Shape{4, 3});
    CHECK(matrix.value.is_contiguous() == with_grads);
    CHECK(matrix.value.transpose(0, 1).is_contiguous() == !with_grads);
    for (const Parameter& p : set.list()) CHECK(p.value.shares_storage(set.values()));

    const Tensor drawn = cast(ctx, initial_value(ctx, matrix, 7), Dtype::f32);
    copy(ctx, drawn, matrix.value);
    CHECK(to_host<float>(ctx, matrix.value) == to_host<float>(ctx, drawn));
    CHECK(to_host<float>(ctx, table.value) == std::vector<float>(15, 0.0f));
    CHECK(to_host<float>(ctx, vector.value) == std::vector<float>(4, 0.0f));
  }
}

TEST_CASE("zero rows of a parameter lie behind it in the arenas", "[autodiff]") {
  const Context ctx = cpu_context(1);
  ParameterSet set;
  Parameter& last = set.add("last", {5}, ParameterKind::vector, 0.0, 0.0);
  Parameter& table = set.add("table", {50, 8}, ParameterKind::embedding, 0.0, 0.0);
  table.zero_rows = 14;
  set.allocate(ctx, Dtype::f32);
  CHECK(table.offset == 0);
  CHECK(last.offset == 64 * 8);
  fill(ctx, table.value, 1.0);
  fill(ctx, last.value, 2.0);
  CHECK(table.value.shape() == Shape{50, 8});
  CHECK(to_host<float>(ctx, table.value.with_rows_behind(14).slice(0, 50, 14)) ==
        std::vector<float>(14 * 8, 0.0f));
}
