#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "core/cuda/sum.h"
#include "core/reduce_test_kernels.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

// Whole numbers whose sums and sums of squares f32 holds exactly, in whatever order they are added.
std::vector<float> whole_numbers(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 37 + i / 11) % 61 - 30);
  return values;
}

struct Reduced {
  std::vector<float> sums, largest, squares;
};

Reduced on_gpu(const std::vector<float>& values, int64_t rows, int threads, int rows_of_block) {
  const Context& ctx = test_cuda_context();
  const int columns = static_cast<int>(static_cast<int64_t>(values.size()) / rows);
  const Tensor x = from_host(ctx, values, {rows, columns});
  Tensor out = empty(ctx, {3, rows}, Dtype::f32);
  float* data = out.mutable_data<float>();
  reduce_rows(Cuda{ctx}, rows, columns, threads, rows_of_block, x.data<float>(),
              RowReductions{data, data + rows, data + 2 * rows});
  const std::vector<float> all = to_host<float>(ctx, out);
  const auto part = [&](int64_t i) {
    return std::vector<float>(all.begin() + i * rows, all.begin() + (i + 1) * rows);
  };
  return {part(0), part(1), part(2)};
}

Reduced on_host(const std::vector<float>& values, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  Reduced r;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = values.begin() + row * columns, end = begin + columns;
    r.sums.push_back(std::accumulate(begin, end, 0.0f));
    r.largest.push_back(*std::max_element(begin, end));
    r.squares.push_back(std::inner_product(begin, end, begin, 0.0f));
  }
  return r;
}

// x [outer, length, inner] summed over length.
std::vector<double> sums_on_host(const std::vector<double>& x, const MiddleSizes& n) {
  std::vector<double> sums(n.outer * n.inner, 0.0);
  for (int64_t o = 0; o < n.outer; ++o) {
    for (int64_t l = 0; l < n.length; ++l) {
      for (int64_t i = 0; i < n.inner; ++i) {
        sums[o * n.inner + i] += x[(o * n.length + l) * n.inner + i];
      }
    }
  }
  return sums;
}

std::vector<double> uniform_values(int64_t count) {
  const RandomStream stream = random_stream(3, 0, 0);
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  return values;
}

template <class T>
std::vector<T> sums_on_gpu(const Tensor& x, const MiddleSizes& n) {
  const Context& ctx = test_cuda_context();
  Tensor y = empty(ctx, {n.outer * n.inner}, dtype_of<T>);
  sum_over_middle(Cuda{ctx}, n, x.data<T>(), SumTarget<T>{y.template mutable_data<T>()});
  return to_host<T>(ctx, y);
}

}  // namespace

TEST_CASE("warp and block reductions of rows of any width, three in a row", "[cuda]") {
  for (int columns : {1, 31, 33, 65, 1000}) {
    for (const auto& [threads, rows_of_block] :
         {std::pair{32, 1}, {32, 8}, {64, 3}, {96, 5}, {256, 1}, {512, 2}, {1024, 1}}) {
      INFO(columns << " columns by " << threads << " threads, " << rows_of_block << " a block");
      const int64_t rows = 11;
      const std::vector<float> values = whole_numbers(rows * columns);
      const Reduced expected = on_host(values, rows);
      const Reduced got = on_gpu(values, rows, threads, rows_of_block);
      CHECK(got.sums == expected.sums);
      CHECK(got.largest == expected.largest);
      CHECK(got.squares == expected.squares);
    }
  }
}

TEST_CASE("a warp reduces groups of neighbouring lanes by themselves", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const std::vector<float> values = whole_numbers(96);
  const Tensor x = from_host(ctx, values, {96});
  Tensor sums = empty(ctx, {12}, Dtype::f32);
  reduce_groups_of_8(Cuda{ctx}, 96, x.data<float>(), sums.mutable_data<float>());
  std::vector<float> expected;
  for (int i = 0; i < 96; i += 8) {
    expected.push_back(std::accumulate(values.begin() + i, values.begin() + i + 8, 0.0f));
  }
  CHECK(to_host<float>(ctx, sums) == expected);
}

TEST_CASE("sums over the middle dimension on the GPU, in one stage and in several", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (const MiddleSizes& n : {MiddleSizes{1, 1, 1},
                               {3, 31, 1},
                               {5, 33, 1},
                               {3, 1000, 1},
                               {7, 2049, 1},
                               {2, 40000, 1},
                               {1, 2100000, 1},
                               {1, 31, 33},
                               {2, 65, 3},
                               {1, 1000, 65},
                               {1, 20000, 2},
                               {3, 700, 8},
                               {1, 5000, 256},
                               {4, 2, 1000},
                               {1, 4097, 129},
                               {70000, 3, 2},
                               {3, 0, 2},
                               {0, 5, 1}}) {
    INFO("(" << n.outer << ", " << n.length << ", " << n.inner << ")");
    const std::vector<double> values = uniform_values(n.outer * n.length * n.inner);
    const Tensor x = from_host(ctx, values, {n.outer, n.length, n.inner});
    const Tensor rounded = cast(ctx, x, Dtype::f32);
    const std::vector<double> expected =
        sums_on_host(to_host<double>(ctx, cast(ctx, rounded, Dtype::f64)), n);
    const std::vector<float> got = sums_on_gpu<float>(rounded, n);
    const std::vector<double> precise = sums_on_gpu<double>(x, n);
    const std::vector<double> precise_expected = sums_on_host(values, n);
    REQUIRE(got.size() == expected.size());
    double worst = 0.0, worst_precise = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - expected[i]));
      worst_precise = std::max(worst_precise, std::abs(precise[i] - precise_expected[i]));
    }
    const double length = static_cast<double>(std::max<int64_t>(1, n.length));
    CHECK(worst <= tolerance(Dtype::f32) * std::sqrt(length));
    CHECK(worst_precise <= tolerance(Dtype::f64) * std::sqrt(length) * std::sqrt(length));
    CHECK(sums_on_gpu<float>(rounded, n) == got);
  }
}

TEST_CASE("a sum has the same bits wherever its rows lie in memory", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (const MiddleSizes& n : {MiddleSizes{4, 1024, 1}, {1, 600, 64}, {2, 30000, 1}}) {
    const int64_t count = n.outer * n.length * n.inner;
    const Tensor x = cast(ctx, from_host(ctx, uniform_values(count), {count}), Dtype::f32);
    Tensor wide = empty(ctx, {count + 1}, Dtype::f32);
    const Tensor shifted = wide.slice(0, 1, count);
    copy(ctx, x, shifted);
    CHECK(sums_on_gpu<float>(shifted, n) == sums_on_gpu<float>(x, n));
  }
}

TEST_CASE("a sum is scaled, added to its target and written with a stride", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Tensor x = from_host(ctx, std::vector<float>{1, 2, 3, 10, 20, 30}, {2, 3});
  Tensor y = from_host(ctx, std::vector<float>{100, -1, 200, -1, 300, -1}, {6});
  const SumTarget<float> target{y.mutable_data<float>(), 2, true, 0.5};
  sum_over_middle(Cuda{ctx}, MiddleSizes{1, 2, 3}, x.data<float>(), target);
  CHECK(to_host<float>(ctx, y) == std::vector<float>{105.5f, -1, 211, -1, 316.5f, -1});
}
