#include "core/copy.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

template <class T>
Tensor tensor(const Context& ctx, const std::vector<T>& values, const Shape& shape) {
  return from_host(ctx, values, shape);
}

uint16_t bf16_bits(float value) {
  return BFloat16(value).bits;
}

float from_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace

TEST_CASE("bf16 rounds to nearest even", "[core]") {
  CHECK(bf16_bits(1.0f) == 0x3f80);
  CHECK(bf16_bits(from_bits(0x3f807fff)) == 0x3f80);  // just below half way
  CHECK(bf16_bits(from_bits(0x3f808000)) == 0x3f80);  // half way, to even
  CHECK(bf16_bits(from_bits(0x3f808001)) == 0x3f81);
  CHECK(bf16_bits(from_bits(0x3f818000)) == 0x3f82);  // half way, to even
  CHECK(bf16_bits(-from_bits(0x3f818000)) == 0xbf82);
  CHECK(bf16_bits(0.0f) == 0x0000);
  CHECK(bf16_bits(-0.0f) == 0x8000);
  CHECK(bf16_bits(std::numeric_limits<float>::max()) == 0x7f80);  // rounds up to infinity
  CHECK(bf16_bits(from_bits(0x00000001)) == 0x0000);
  CHECK(bf16_bits(from_bits(0x00018000)) == 0x0002);  // subnormals too
}

TEST_CASE("bf16 keeps infinities, and NaN stays NaN whatever its payload", "[core]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(bf16_bits(infinity) == 0x7f80);
  CHECK(bf16_bits(-infinity) == 0xff80);
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    INFO(std::hex << bits);
    CHECK(std::isnan(static_cast<float>(BFloat16(from_bits(bits)))));
  }
}

TEST_CASE("every bf16 number survives the way to f32 and back", "[core]") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float wide = x;
    if (std::isnan(wide)) continue;
    wrong += BFloat16(wide).bits != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("casts convert values between all dtypes", "[core]") {
  const Context ctx = cpu_context(2);
  const std::vector<double> values{-3.0, 0.0, 1.0, 250.0};
  const Tensor x = tensor(ctx, values, {2, 2});
  for (Dtype via : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::i64}) {
    INFO(via);
    const Tensor y = cast(ctx, x, via);
    CHECK(y.dtype() == via);
    CHECK(y.shape() == x.shape());
    CHECK(to_host<double>(ctx, cast(ctx, y, Dtype::f64)) == values);
  }
  CHECK(cast(ctx, x, Dtype::f64).shares_storage(x));
  const Tensor third = tensor<double>(ctx, {1.0 / 3.0}, {1});
  CHECK(to_host<float>(ctx, cast(ctx, third, Dtype::f32))[0] == 1.0f / 3.0f);
}

TEST_CASE("f64 to bf16 rounds once", "[core]") {
  const Context ctx = cpu_context(1);
  // Just above half way between two bf16 numbers, by less than f32 can tell: rounding to f32 first
  // would leave the tie, which goes down to even.
  const Tensor x =
      tensor<double>(ctx, {1.0 + 0x1p-8 + 0x1p-40, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8}, {3});
  const std::vector<BFloat16> y = to_host<BFloat16>(ctx, cast(ctx, x, Dtype::bf16));
  CHECK(y[0].bits == 0x3f81);
  CHECK(y[1].bits == 0x3f80);
  CHECK(y[2].bits == 0x3f82);
}

TEST_CASE("copies follow the strides of both sides", "[core]") {
  for (int threads : {1, 2}) {
    const Context ctx = cpu_context(threads);
    const Tensor x = tensor<float>(ctx, {1, 2, 3, 4, 5, 6}, {2, 3});
    CHECK(to_host<float>(ctx, x.transpose(0, 1)) == std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(to_host<float>(ctx, contiguous(ctx, x.slice(1, 1, 2))) == std::vector<float>{2, 3, 5, 6});
    CHECK(contiguous(ctx, x).shares_storage(x));
    const Tensor target = zeros(ctx, {3, 3}, Dtype::f64);
    copy(ctx, x.transpose(0, 1), target.slice(1, 1, 2));
    CHECK(to_host<double>(ctx, target) == std::vector<double>{0, 1, 4, 0, 2, 5, 0, 3, 6});
    copy(ctx, x.slice(0, 0, 1).expand({3, 3}), target);
    CHECK(to_host<double>(ctx, target) == std::vector<double>{1, 2, 3, 1, 2, 3, 1, 2, 3});
  }
}

TEST_CASE("a large strided copy has every element in its place", "[core]") {
  const Context ctx = cpu_context(2);
  const int64_t rows = 301, columns = 257;
  std::vector<int64_t> values(rows * columns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  const Tensor x = tensor(ctx, values, {rows, columns});
  const std::vector<int64_t> y = to_host<int64_t>(ctx, x.transpose(0, 1));
  int64_t wrong = 0;
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t j = 0; j < rows; ++j) wrong += y[i * rows + j] != j * columns + i;
  }
  CHECK(wrong == 0);
}

TEST_CASE("adding in place takes the wider type and any strides", "[core]") {
  const Context ctx = cpu_context(1);
  Tensor sum = tensor<float>(ctx, {1, 2, 3, 4}, {2, 2});
  add_into(ctx, tensor<BFloat16>(ctx, {10.0f, 20.0f, 30.0f, 40.0f}, {2, 2}).transpose(0, 1), sum);
  CHECK(to_host<float>(ctx, sum) == std::vector<float>{11, 32, 23, 44});
  Tensor small = tensor<BFloat16>(ctx, {256.0f}, {1});
  add_into(ctx, tensor<float>(ctx, {1.5f}, {1}), small);  // 257.5 rounds to 258
  CHECK(static_cast<float>(to_host<BFloat16>(ctx, small)[0]) == 258.0f);
  Tensor exact = tensor<double>(ctx, {1.0}, {1});
  add_into(ctx, tensor<float>(ctx, {0x1p-40f}, {1}), exact);
  CHECK(to_host<double>(ctx, exact)[0] == 1.0 + 0x1p-40);
}

TEST_CASE("fill writes every element of a view and nothing beside it", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = zeros(ctx, {3, 3}, Dtype::i32);
  fill(ctx, x.slice(1, 1, 1), 7.0);
  CHECK(to_host<int32_t>(ctx, x) == std::vector<int32_t>{0, 7, 0, 0, 7, 0, 0, 7, 0});
  fill(ctx, empty(ctx, {0, 3}, Dtype::f32), 1.0);
}

TEST_CASE("copies of other shapes or sizes are refused with both", "[core]") {
  const Context ctx = cpu_context(1);
  const Tensor x = zeros(ctx, {2, 3}, Dtype::f32), y = zeros(ctx, {3, 2}, Dtype::f32);
  CHECK_THROWS_WITH(copy(ctx, x, y), "copy: shapes must agree; got (2, 3) to (3, 2)");
  CHECK_THROWS_WITH(add_into(ctx, x, y), "add_into: shapes must agree; got (2, 3) to (3, 2)");
  CHECK_THROWS_WITH(tensor<float>(ctx, {1, 2}, {3}), "from_host: 2 values do not fill shape (3)");
  CHECK_THROWS_WITH(to_host<double>(ctx, x), "tensor: read or written as f64 but its dtype is f32");
}
