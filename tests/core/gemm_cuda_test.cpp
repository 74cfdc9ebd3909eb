#include <algorithm>

#include "core/error.h"
#include "core/gemm_checks.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

constexpr GemmBackend kBackends[] = {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma,
                                     GemmBackend::library, GemmBackend::library_tf32};

Context context_with(GemmBackend backend) {
  Context ctx = test_cuda_context();
  ctx.gemm = backend;
  return ctx;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("every gemm backend of the GPU satisfies what those of the CPU do", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    check_sizes_and_transposes(ctx);
    check_scaling_and_adding(ctx);
    check_batches(ctx);
    check_matrices_without_contiguous_dimension(ctx);
    check_writes_nothing_beside(ctx);
    check_products_over_nothing(ctx);
    check_beta_0_overwrites(ctx);
    check_bf16_sums_in_f32(ctx);
    check_bias(ctx);
  }
}

TEST_CASE("products with a bias and the GELU of them are right where a backend has them",
          "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    const bool library = backend == GemmBackend::library || backend == GemmBackend::library_tf32;
    for (const Shape& size : {Shape{130, 264, 128}, Shape{1000, 3072, 768}}) {
      INFO(name_of(backend) << " " << size);
      CHECK(check_bias_and_gelu(ctx, size, Dtype::bf16) == library);
      if (backend != GemmBackend::mma) CHECK_FALSE(check_bias_and_gelu(ctx, size, Dtype::f32));
    }
    CHECK_FALSE(check_bias_and_gelu(ctx, {64, 33, 32}, Dtype::bf16));  // rows at odd addresses
    CHECK_FALSE(check_bias_and_gelu(ctx, {4, 64, 0}, Dtype::bf16));
  }
}

TEST_CASE("GPU products of several tiles are right for every transpose", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      for (int t = 0; t < 4; ++t) {
        for (int64_t odd : {0, 1}) {  // lines that begin at multiples of 16 bytes, and others
          const int64_t m = 264 + odd, n = 520 + odd, k = 200 + odd;
          const Tensor a = random_matrix(ctx, {m, k}, t & 1, d.operands, 1);
          const Tensor b = random_matrix(ctx, {k, n}, t & 2, d.operands, 2);
          check_product(ctx, a, b, random_tensor(ctx, {m, n}, d.result, 3), 0.5, 1.0);
        }
      }
    }
  }
}

// More tiles than run at once, and a k of more slices than shared memory holds.
TEST_CASE("GPU products of many tiles are right for every transpose", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      for (int t = 0; t < 4; ++t) {
        const Tensor a = random_matrix(ctx, {150, 8, 328}, t & 1, d.operands, 1);
        const Tensor b = random_matrix(ctx, {150, 328, 136}, t & 2, d.operands, 2);
        check_product(ctx, a, b, random_tensor(ctx, {150, 8, 136}, d.result, 3));
      }
    }
  }
}

TEST_CASE("GPU products take nothing from beyond their operands, wherever these begin", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      for (int t = 0; t < 8; ++t) {
        for (int64_t before : {0, 1, 2, 8}) {
          const int64_t after = t % 3 == 0 ? 8 : 3;
          const auto matrix = [&](const Shape& shape, bool transposed, Dtype dtype, uint64_t site) {
            return framed(ctx, random_matrix(ctx, shape, transposed, dtype, site), kNaN, before,
                          after);
          };
          const Tensor a = matrix({2, 130, 69}, t & 1, d.operands, 1);
          const Tensor b = matrix({2, 69, 133}, t & 2, d.operands, 2);
          check_product(ctx, a, b, matrix({2, 130, 133}, t & 4, d.result, 3), 1.0, 1.0);
        }
      }
    }
  }
}

TEST_CASE("GPU products take more batches than a grid has rows", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      const Tensor a = random_tensor(ctx, {70000, 2, 3}, d.operands, 1);
      const Tensor b = random_tensor(ctx, {70000, 3, 2}, d.operands, 2);
      check_product(ctx, a, b, random_tensor(ctx, {70000, 2, 2}, d.result, 3));
    }
  }
}

TEST_CASE("GPU products take results of more than 2^31 elements", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    constexpr int64_t kRows = 66000, kColumns = 33000, kInner = 16;  // 4.4 GB of bf16
    const Tensor a = random_tensor(ctx, {kRows, kInner}, Dtype::bf16, 1);
    const Tensor b = random_tensor(ctx, {kInner, kColumns}, Dtype::bf16, 2);
    const Tensor c = empty(ctx, {kRows, kColumns}, Dtype::bf16);
    gemm(ctx, a, b, c);
    const Tensor last_a = a.slice(0, kRows - 2, 2), last_c = c.slice(0, kRows - 2, 2);
    INFO(name_of(backend));
    CHECK(relative_difference(doubles(ctx, last_c), product(ctx, last_a, b, last_c, 1.0, 0.0)) <=
          tolerance(Dtype::bf16, kInner));
  }
}

TEST_CASE("GPU products have the same bits every time", "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : kGemmDtypes) {
      if (backend == GemmBackend::mma && d.operands != Dtype::bf16) continue;
      // Few results over a long k, which invites a library to split k, and many.
      for (const Shape& sizes : {Shape{64, 96, 20000}, Shape{1000, 1000, 300}}) {
        const Tensor a = random_tensor(ctx, {sizes[0], sizes[2]}, d.operands, 1);
        const Tensor b = random_tensor(ctx, {sizes[2], sizes[1]}, d.operands, 2);
        const auto run = [&] {
          const Tensor c = random_tensor(ctx, {sizes[0], sizes[1]}, d.result, 3);
          gemm(ctx, a, b, c, 1.0, 1.0);
          return doubles(ctx, c);
        };
        INFO(name_of(backend) << " " << d.operands << " -> " << d.result << " " << sizes);
        const std::vector<double> expected = run();
        for (int i = 0; i < 5; ++i) CHECK(run() == expected);
      }
    }
  }
}

// A dot product's place in the result, its batch and the layout of the operands do not matter.
TEST_CASE("elements of own GPU products depend on their row and column alone", "[cuda]") {
  for (GemmBackend backend : {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma}) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      const Tensor a = random_tensor(ctx, {200, 150}, d.operands, 1);
      const Tensor b = random_tensor(ctx, {150, 300}, d.operands, 2);
      const auto run = [&](const Tensor& x, const Tensor& y) {
        const Tensor c = empty(ctx, {x.size(0), y.size(1)}, d.result);
        gemm(ctx, x, y, c);
        return doubles(ctx, c);
      };
      const std::vector<double> whole = run(a, b);
      INFO(name_of(backend) << " " << d.operands << " -> " << d.result);
      const auto by_columns = [&](const Tensor& x) {
        return contiguous(ctx, x.transpose(0, 1)).transpose(0, 1);
      };
      CHECK(run(by_columns(a), b) == whole);
      CHECK(run(a, by_columns(b)) == whole);
      CHECK(run(framed(ctx, a, kNaN, 1, 2), framed(ctx, b, kNaN, 3, 1)) == whole);
      const std::vector<double> rows = run(a.slice(0, 131, 7), b);
      CHECK(std::equal(rows.begin(), rows.end(), whole.begin() + 131 * 300));
    }
  }
}

TEST_CASE("GPU products of few rows do not depend on how many there are", "[cuda]") {
  const Context ctx = context_with(GemmBackend::library);
  for (const GemmDtypes& d : kGemmDtypes) {
    for (const Shape& sizes : {Shape{1, 8}, Shape{77, 128}, Shape{1000, 1032}, Shape{96, 5000}}) {
      const int64_t n = sizes[0], k = sizes[1];
      const Tensor a = random_tensor(ctx, {8, k}, d.operands, 1);
      const Tensor w = random_tensor(ctx, {n, k}, d.operands, 2), b = w.transpose(0, 1);
      const auto run = [&](const Tensor& x) {
        const Tensor c = random_tensor(ctx, {x.size(0), n}, d.result, 3);
        check_product(ctx, x, b, c, 0.5, 0.0);
        gemm(ctx, x, b, c);
        return doubles(ctx, c);
      };
      INFO(d.operands << " -> " << d.result << " " << sizes);
      const std::vector<double> whole = run(a);
      for (int64_t rows = 1; rows < 8; ++rows) {
        const std::vector<double> some = run(a.slice(0, 8 - rows, rows));
        CHECK(std::equal(some.begin(), some.end(), whole.begin() + (8 - rows) * n));
      }
    }
  }
}

TEST_CASE("f32 products of the GPU are f32 unless TF32 is asked for by name", "[cuda]") {
  const Context exact = context_with(GemmBackend::naive);
  const Tensor a = random_tensor(exact, {256, 256}, Dtype::f32, 1);
  const Tensor b = random_tensor(exact, {256, 256}, Dtype::f32, 2);
  const Tensor c = empty(exact, {256, 256}, Dtype::f32);
  const std::vector<double> expected = product(exact, a, b, c, 1.0, 0.0);
  const auto error = [&](GemmBackend backend) {
    gemm(context_with(backend), a, b, c);
    return relative_difference(doubles(exact, c), expected);
  };
  for (GemmBackend backend : {GemmBackend::naive, GemmBackend::tiled, GemmBackend::library}) {
    INFO(name_of(backend));
    CHECK(error(backend) <= tolerance(Dtype::f32, 256));
  }
  constexpr double kTf32Epsilon = 0x1p-10;
  const double rounded = error(GemmBackend::library_tf32);
  CHECK(rounded > tolerance(Dtype::f32, 256));
  CHECK(rounded < kTf32Epsilon);
}

TEST_CASE("infinity and NaN of an operand reach their row of a GPU product and no other",
          "[cuda]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      const Tensor a = random_tensor(ctx, {70, 40}, d.operands, 1);
      const Tensor b = zeros(ctx, {40, 90}, d.operands);
      fill(ctx, b, 1.0);
      const Tensor c = empty(ctx, {70, 90}, d.result);
      fill(ctx, a.slice(0, 5, 1).slice(1, 39, 1), kNaN);
      fill(ctx, a.slice(0, 69, 1).slice(1, 0, 1), std::numeric_limits<double>::infinity());
      gemm(ctx, a, b, c);
      const std::vector<double> values = doubles(ctx, c);
      INFO(name_of(backend) << " " << d.operands << " -> " << d.result);
      int64_t wrong = 0;
      for (int64_t i = 0; i < 70 * 90; ++i) {
        const int64_t row = i / 90;
        const bool right = row == 5    ? std::isnan(values[i])
                           : row == 69 ? values[i] == std::numeric_limits<double>::infinity()
                                       : std::isfinite(values[i]);
        wrong += !right;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the tensor core backend refuses what it does not compute", "[cuda]") {
  const Context ctx = context_with(GemmBackend::mma);
  const auto square = [&](Dtype dtype) { return zeros(ctx, {16, 16}, dtype); };
  CHECK_THROWS_WITH(gemm(ctx, square(Dtype::f32), square(Dtype::f32), square(Dtype::f32)),
                    "matmul: backend mma takes bf16 operands; got f32: use naive, tiled, library "
                    "or library_tf32");
  CHECK_THROWS_AS(gemm(ctx, square(Dtype::f64), square(Dtype::f64), square(Dtype::f64)), Error);
}
