#include "ops/append_rows/append_rows.h"

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

Tensor counts(const Context& ctx, const std::vector<int32_t>& values) {
  return from_host(ctx, values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("append_rows writes each sequence's rows behind what it holds", "[ops]") {
  const Context ctx = cpu_context(2);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype);
    std::vector<float> numbers(2 * 3 * 2);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i + 1);
    const Tensor x = cast(ctx, from_host(ctx, numbers, {2, 3, 2}), dtype);
    const Tensor table = zeros(ctx, {2, 4, 2}, dtype);
    append_rows(ctx, x, counts(ctx, {0, 2}), counts(ctx, {3, 1}), table);
    const std::vector<float> expected{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 7, 8, 0, 0};
    CHECK(to_host<float>(ctx, cast(ctx, table, Dtype::f32)) == expected);
  }
}

TEST_CASE("append_rows reads strided rows and never writes outside the table", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor wide = from_host(ctx, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor outer = zeros(ctx, {4, 2, 1}, Dtype::f32);  // tables of other sequences around it
  const Tensor table = outer.slice(0, 1, 2);
  append_rows(ctx, wide.slice(2, 1, 1), counts(ctx, {1, -1}), counts(ctx, {2, 2}), table);
  CHECK(to_host<float>(ctx, outer) == std::vector<float>{0, 0, 0, 2, 8, 0, 0, 0});
  append_rows(ctx, wide.transpose(0, 1).slice(2, 0, 1), counts(ctx, {0, 0}), counts(ctx, {2, 0}),
              table);
  CHECK(to_host<float>(ctx, table) == std::vector<float>{1, 5, 8, 0});
}

TEST_CASE("append_rows writes two tables as it writes each", "[ops]") {
  const Context ctx = cpu_context(2);
  const Tensor packed = from_host(ctx, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor x = packed.slice(2, 0, 1), y = packed.slice(2, 1, 1);
  const Tensor xs = zeros(ctx, {2, 3, 1}, Dtype::f32), ys = zeros(ctx, {2, 3, 1}, Dtype::f32);
  append_rows(ctx, x, y, counts(ctx, {0, 1}), counts(ctx, {1, 2}), xs, ys);
  CHECK(to_host<float>(ctx, xs) == std::vector<float>{1, 0, 0, 0, 5, 7});
  CHECK(to_host<float>(ctx, ys) == std::vector<float>{2, 0, 0, 0, 6, 8});
  CHECK_THROWS_AS(append_rows(ctx, x, y, counts(ctx, {0, 1}), counts(ctx, {1, 2}), xs,
                              zeros(ctx, {2, 4, 1}, Dtype::f32)),
                  Error);
}

TEST_CASE("append_rows refuses what does not fit together", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = zeros(ctx, {2, 3, 4}, Dtype::f32), one = counts(ctx, {0, 0});
  CHECK_THROWS_AS(append_rows(ctx, x, one, one, zeros(ctx, {2, 8, 5}, Dtype::f32)), Error);
  CHECK_THROWS_AS(append_rows(ctx, x, one, one, zeros(ctx, {3, 8, 4}, Dtype::f32)), Error);
  CHECK_THROWS_AS(append_rows(ctx, x, one, one, zeros(ctx, {2, 8, 4}, Dtype::bf16)), Error);
  CHECK_THROWS_AS(append_rows(ctx, x, counts(ctx, {0}), one, zeros(ctx, {2, 8, 4}, Dtype::f32)),
                  Error);
  const Tensor table = zeros(ctx, {8, 2, 4}, Dtype::f32).transpose(0, 1);
  CHECK_THROWS_AS(append_rows(ctx, x, one, one, table), Error);
}

TEST_CASE("add_counts adds in place", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor a = counts(ctx, {1, 2, 300}), b = counts(ctx, {10, 0, 1});
  add_counts(ctx, a, b, a);
  CHECK(to_host<int32_t>(ctx, a) == std::vector<int32_t>{11, 2, 301});
}
