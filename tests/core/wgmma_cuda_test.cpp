// The pieces of core/cuda/hopper, each by itself and in whole numbers, which must come out exactly.

#include <array>
#include <cmath>

#include "core/copy.h"
#include "core/cuda/hopper/support.h"
#include "core/wgmma_test_kernels.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

// Between -span and span, all of them bf16 numbers.
std::vector<double> whole_numbers(int64_t count, uint64_t site, int span) {
  const RandomStream stream = random_stream(7, 0, site);
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::floor(stream.uniform(0, i) * (2 * span + 1)) - span;
  }
  return values;
}

Tensor on_gpu(const std::vector<double>& values, const Shape& shape) {
  const Context& ctx = test_cuda_context();
  return cast(ctx, from_host(ctx, values, shape), Dtype::bf16);
}

std::vector<double> on_host(const Tensor& x) {
  const Context& ctx = test_cuda_context();
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// x [rows, depth] y [columns, depth]^T
std::vector<double> product_of(const std::vector<double>& x, const std::vector<double>& y,
                               int64_t depth) {
  std::vector<double> product;
  for (size_t i = 0; i < x.size(); i += depth) {
    for (size_t j = 0; j < y.size(); j += depth) {
      double sum = 0.0;
      for (int64_t d = 0; d < depth; ++d) sum += x[i + d] * y[j + d];
      product.push_back(sum);
    }
  }
  return product;
}

std::vector<double> transposed(const std::vector<double>& x, int64_t rows, int64_t columns) {
  std::vector<double> y;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) y.push_back(x[r * columns + c]);
  }
  return y;
}

}  // namespace

TEST_CASE("wgmma multiplies operands from registers and from tiles either way round", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!has_wgmma(Cuda{ctx})) return;
  for (const WgmmaRecipe& recipe : wgmma_recipes()) {
    INFO(recipe.what);
    const std::vector<double> x = whole_numbers(64 * recipe.depth, 0, 8);
    const std::vector<double> y = whole_numbers(recipe.columns * recipe.depth, 1, 8);
    const Tensor left = on_gpu(x, {64, recipe.depth});
    const Tensor right = on_gpu(y, {recipe.columns, recipe.depth});
    Tensor product = empty(ctx, {64, recipe.columns}, Dtype::f32);
    recipe.multiply(Cuda{ctx}, left.data<BFloat16>(), right.data<BFloat16>(),
                    product.mutable_data<float>());
    CHECK(on_host(product) == product_of(x, y, recipe.depth));
  }
}

TEST_CASE("sums of wgmma, rounded, are the left operand of the next product", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!has_wgmma(Cuda{ctx})) return;
  const std::vector<double> x = whole_numbers(64 * 16, 0, 2), y = whole_numbers(64 * 16, 1, 2),
                            z = whole_numbers(64 * 64, 2, 8);
  const Tensor gx = on_gpu(x, {64, 16}), gy = on_gpu(y, {64, 16}), gz = on_gpu(z, {64, 64});
  Tensor product = empty(ctx, {64, 64}, Dtype::f32), rounded = empty(ctx, {64, 64}, Dtype::bf16);
  wgmma_chain(Cuda{ctx}, gx.data<BFloat16>(), gy.data<BFloat16>(), gz.data<BFloat16>(),
              product.mutable_data<float>(), rounded.mutable_data<BFloat16>());
  const std::vector<double> first = product_of(x, y, 16);
  CHECK(on_host(rounded) == first);
  CHECK(on_host(product) == product_of(first, transposed(z, 64, 64), 64));
}

TEST_CASE("the copy engine brings and takes tiles of one head, and no more", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!has_wgmma(Cuda{ctx})) return;
  constexpr double kUntouched = -1000.0;
  const int64_t batch = 2, time = 300, heads = 3;
  for (const auto& [rows, width] :
       {std::pair{64, 32}, {64, 64}, {128, 64}, {64, 96}, {128, 128}, {80, 256}}) {
    // A packed projection holds two such tensors side by side; this is the second.
    const int64_t row = 2 * heads * width;
    const std::vector<double> values = whole_numbers(batch * time * row, 3, 100);
    const Tensor from = on_gpu(values, {batch, time, 2, heads, width});
    const TileCopy copy{width, rows, batch, time, heads, time * row, row, width};
    for (const auto& [b, h, first] :
         {std::array{0, 0, 0}, {1, 2, 128}, {0, 1, 256}, {1, 0, 299}, {1, 2, 320}}) {
      INFO("width " << width << ", rows " << first << " .. " << first + rows << " of head " << h);
      Tensor to = empty(ctx, {batch, time, 2, heads, width}, Dtype::bf16);
      Tensor tile = empty(ctx, {rows, width}, Dtype::bf16);
      fill(ctx, to, kUntouched);
      REQUIRE(copy_tile(Cuda{ctx}, copy, b, h, first, from.data<BFloat16>() + heads * width,
                        to.mutable_data<BFloat16>() + heads * width,
                        tile.mutable_data<BFloat16>()));
      std::vector<double> expected_tile(rows * width, 0.0);
      std::vector<double> expected(values.size(), kUntouched);
      for (int64_t r = 0; r < rows && first + r < time; ++r) {
        for (int64_t d = 0; d < width; ++d) {
          const int64_t at = (b * time + first + r) * row + (heads + h) * width + d;
          expected_tile[r * width + d] = values[at];
          expected[at] = values[at];
        }
      }
      CHECK(on_host(tile) == expected_tile);
      CHECK(on_host(to) == expected);
    }
  }
}

TEST_CASE("tiles pass through a ring of stages many times round", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!has_wgmma(Cuda{ctx})) return;
  for (int stages : {2, 4}) {
    for (int tiles : {1, 2, 5, 23}) {
      INFO(stages << " stages, " << tiles << " tiles");
      const std::vector<double> values = whole_numbers(tiles * 64 * 64, 4, 100);
      const Tensor x = on_gpu(values, {tiles * 64, 64});
      Tensor y = empty(ctx, {2, tiles * 64, 64}, Dtype::bf16);
      copy_through_ring(Cuda{ctx}, stages, tiles, x.data<BFloat16>(), y.mutable_data<BFloat16>());
      CHECK(on_host(y.slice(0, 0, 1)) == values);
      CHECK(on_host(y.slice(0, 1, 1)) == values);
    }
  }
}
