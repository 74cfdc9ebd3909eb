#include "core/copy.h"
#include "ops/append_rows/append_rows.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

// A table after rows of a packed tensor have been written into it.
std::vector<double> written(const Context& ctx, Dtype dtype, int64_t width) {
  constexpr int64_t B = 5, T = 37, kCapacity = 60;
  std::vector<double> numbers(B * T * 3 * width);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 251) - 125.0;
  const Tensor packed = cast(ctx, from_host(ctx, numbers, {B, T, 3 * width}), dtype);
  const Tensor table = zeros(ctx, {B, kCapacity, width}, dtype);
  const Tensor start = from_host(ctx, std::vector<int32_t>{0, 23, 7, -1, 59}, {B});
  const Tensor added = from_host(ctx, std::vector<int32_t>{37, 37, 0, 2, 9}, {B});
  append_rows(ctx, packed.slice(2, width, width), start, added, table);
  const Tensor first = zeros(ctx, table.shape(), dtype), last = zeros(ctx, table.shape(), dtype);
  append_rows(ctx, packed.slice(2, 0, width), packed.slice(2, 2 * width, width), start, added,
              first, last);
  std::vector<double> values;
  for (const Tensor& each : {table, first, last}) {
    const std::vector<double> more = to_host<double>(ctx, cast(ctx, each, Dtype::f64));
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

}  // namespace

TEST_CASE("append_rows writes on the GPU what it writes on the CPU", "[cuda]") {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const int64_t width : {1, 24, 128, 1000}) {
      INFO(dtype << ", width " << width);
      CHECK(written(test_cuda_context(), dtype, width) == written(cpu_context(1), dtype, width));
    }
  }
}

TEST_CASE("add_counts adds on the GPU", "[cuda]") {
  const Context& ctx = test_cuda_context();
  std::vector<int32_t> numbers(1000), twice(1000);
  for (int32_t i = 0; i < 1000; ++i) twice[i] = 2 * (numbers[i] = i - 500);
  const Tensor a = from_host(ctx, numbers, {1000});
  add_counts(ctx, a, a, a);
  CHECK(to_host<int32_t>(ctx, a) == twice);
}
