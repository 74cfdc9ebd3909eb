#include "core/gemm.h"

#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr GemmBackend kBackends[] = {GemmBackend::naive, GemmBackend::tiled, GemmBackend::library};

struct Dtypes {
  Dtype operands, result;
};
constexpr Dtypes kDtypes[] = {{Dtype::f64, Dtype::f64},
                              {Dtype::f32, Dtype::f32},
                              {Dtype::bf16, Dtype::bf16},
                              {Dtype::bf16, Dtype::f32}};

Tensor random_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t site) {
  const RandomStream stream = random_stream(3, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  return cast(ctx, from_host(ctx, values, shape), dtype);
}

// A random matrix [..., rows, columns], stored by columns when transposed.
Tensor operand(const Context& ctx, Shape shape, bool transposed, Dtype dtype, uint64_t site) {
  if (!transposed) return random_tensor(ctx, shape, dtype, site);
  std::swap(shape[shape.rank() - 2], shape[shape.rank() - 1]);
  return random_tensor(ctx, shape, dtype, site).transpose(-1, -2);
}

std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// alpha * a b + beta * c of [batch, ., .] tensors by the definition, in f64.
std::vector<double> product(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& c,
                            double alpha, double beta) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1), batches = c.numel() / (m * n);
  const std::vector<double> x = doubles(ctx, a), y = doubles(ctx, b);
  std::vector<double> z = doubles(ctx, c);
  for (int64_t i = 0; i < batches * m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * y[(i / m * k + l) * n + j];
      z[i * n + j] = alpha * sum + (beta == 0.0 ? 0.0 : beta * z[i * n + j]);
    }
  }
  return z;
}

void check_product(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c,
                   double alpha = 1.0, double beta = 0.0) {
  INFO(name_of(ctx.gemm) << " " << a.dtype() << " -> " << c.dtype() << " " << a.shape() << " x "
                         << b.shape() << " strides " << a.strides() << " " << b.strides());
  const std::vector<double> expected = product(ctx, a, b, c, alpha, beta);
  gemm(ctx, a, b, c, alpha, beta);
  CHECK(relative_difference(doubles(ctx, c), expected) <= tolerance(c.dtype(), a.size(-1)));
}

Context context_with(GemmBackend backend, int threads = 1) {
  Context ctx = cpu_context(threads);
  ctx.gemm = backend;
  return ctx;
}

}  // namespace

TEST_CASE("every gemm backend computes every size, transpose and dtype", "[core]") {
  struct Sizes {
    int64_t m, n, k;
  };
  const Sizes sizes[] = {{1, 1, 1},   {3, 4, 5},    {4, 32, 1},   {31, 33, 3},  {32, 31, 65},
                         {33, 1, 32}, {1, 257, 31}, {65, 32, 33}, {257, 4, 32}, {3, 65, 257}};
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const auto& [m, n, k] : sizes) {
      for (const Dtypes& d : kDtypes) {
        for (int t = 0; t < 8; ++t) {
          const Tensor a = operand(ctx, {m, k}, t & 1, d.operands, 1);
          const Tensor b = operand(ctx, {k, n}, t & 2, d.operands, 2);
          check_product(ctx, a, b, operand(ctx, {m, n}, t & 4, d.result, 3));
        }
      }
    }
  }
}

TEST_CASE("gemm scales the product and adds to what is there", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const Dtypes& d : kDtypes) {
      for (bool transposed : {false, true}) {
        const Tensor a = random_tensor(ctx, {33, 17}, d.operands, 1);
        const Tensor b = random_tensor(ctx, {17, 35}, d.operands, 2);
        check_product(ctx, a, b, operand(ctx, {33, 35}, transposed, d.result, 3), 1.0, 1.0);
        check_product(ctx, a, b, operand(ctx, {33, 35}, transposed, d.result, 3), -0.5, 2.0);
        check_product(ctx, a, b, operand(ctx, {33, 35}, transposed, d.result, 3), 0.0, 0.5);
      }
    }
  }
}

TEST_CASE("gemm takes batches with gaps, repeated batches and any order of batches", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend, 2);
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      // Heads of a packed projection: [B, T, 3, H, D] seen as [B, H, T, D].
      const Tensor packed = random_tensor(ctx, {2, 5, 3, 4, 7}, dtype, 1);
      const auto part = [&](int64_t i) {
        return packed.slice(2, i, 1).reshape({2, 5, 4, 7}).transpose(1, 2);
      };
      const Tensor q = part(0), k = part(1), v = part(2);
      check_product(ctx, q, k.transpose(-1, -2), random_tensor(ctx, {2, 4, 5, 5}, dtype, 2));
      const Tensor probabilities = random_tensor(ctx, {2, 4, 5, 5}, dtype, 3);
      const Tensor merged = random_tensor(ctx, {2, 5, 4, 7}, dtype, 4);
      check_product(ctx, probabilities, v, merged.transpose(1, 2), 1.0, 1.0);
      // One weight for every batch.
      const Tensor weight = random_tensor(ctx, {1, 1, 7, 3}, dtype, 5).expand({2, 4, 7, 3});
      check_product(ctx, q, weight, random_tensor(ctx, {2, 4, 5, 3}, dtype, 6));
      const Tensor row = random_tensor(ctx, {1, 1, 1, 5}, dtype, 7).expand({2, 4, 6, 5});
      check_product(ctx, row, v, random_tensor(ctx, {2, 4, 6, 7}, dtype, 8));
    }
  }
}

TEST_CASE("gemm takes matrices of which neither dimension is contiguous", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    const Tensor every_second = random_tensor(ctx, {6, 5, 2}, Dtype::f32, 1).slice(2, 1, 1);
    const Tensor x = every_second.reshape({6, 5});
    REQUIRE_FALSE(x.stride(1) == 1);
    const Tensor target = random_tensor(ctx, {6, 6, 2}, Dtype::f32, 2).slice(2, 0, 1);
    check_product(ctx, x, x.transpose(0, 1), target.reshape({6, 6}), 1.0, 1.0);
  }
}

TEST_CASE("gemm writes nothing beside its result", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend, 2);
    const Tensor frame = zeros(ctx, {40, 40}, Dtype::f32);
    fill(ctx, frame, 9.0);
    const Tensor inside = frame.slice(0, 2, 35).slice(1, 3, 33);
    gemm(ctx, random_tensor(ctx, {35, 8}, Dtype::f32, 1),
         random_tensor(ctx, {8, 33}, Dtype::f32, 2), inside);
    fill(ctx, inside, 9.0);
    CHECK(to_host<float>(ctx, frame) == std::vector<float>(1600, 9.0f));
  }
}

TEST_CASE("a product over nothing is 0, or beta times what is there", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(name_of(backend) << " " << dtype);
      {  // leave NaN behind in the memory that the result gets
        const Tensor dirt = empty(ctx, {3, 4}, dtype);
        fill(ctx, dirt, std::numeric_limits<double>::quiet_NaN());
      }
      const Tensor a = empty(ctx, {3, 0}, dtype), b = empty(ctx, {0, 4}, dtype);
      const Tensor c = empty(ctx, {3, 4}, dtype);
      gemm(ctx, a, b, c);
      CHECK(doubles(ctx, c) == std::vector<double>(12, 0.0));
      fill(ctx, c, 2.0);
      gemm(ctx, a, b, c, 1.0, 0.5);
      CHECK(doubles(ctx, c) == std::vector<double>(12, 1.0));
      const Tensor rows = empty(ctx, {0, 5}, dtype);
      gemm(ctx, rows, random_tensor(ctx, {5, 4}, dtype, 1), empty(ctx, {0, 4}, dtype));
      gemm(ctx, random_tensor(ctx, {4, 5}, dtype, 1), rows.transpose(0, 1),
           empty(ctx, {4, 0}, dtype));
      gemm(ctx, empty(ctx, {0, 2, 3}, dtype), empty(ctx, {0, 3, 4}, dtype),
           empty(ctx, {0, 2, 4}, dtype));
    }
  }
}

TEST_CASE("beta 0 overwrites what is there, NaN included", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    for (const Dtypes& d : kDtypes) {
      for (bool transposed : {false, true}) {
        const Tensor c = operand(ctx, {5, 6}, transposed, d.result, 3);
        fill(ctx, c, std::numeric_limits<double>::quiet_NaN());
        check_product(ctx, random_tensor(ctx, {5, 7}, d.operands, 1),
                      random_tensor(ctx, {7, 6}, d.operands, 2), c);
      }
    }
  }
}

TEST_CASE("gemm has the same bits for any number of threads", "[core]") {
  for (GemmBackend backend : kBackends) {
    for (const Dtypes& d : kDtypes) {
      const auto run = [&](int threads) {
        const Context ctx = context_with(backend, threads);
        const Tensor c = random_tensor(ctx, {2, 129, 70}, d.result, 3);
        gemm(ctx, random_tensor(ctx, {2, 129, 65}, d.operands, 1),
             random_tensor(ctx, {2, 65, 70}, d.operands, 2), c, 1.0, 1.0);
        return doubles(ctx, c);
      };
      const std::vector<double> expected = run(1);
      INFO(name_of(backend) << " " << d.operands);
      for (int threads : {2, 3, 8}) CHECK(run(threads) == expected);
    }
  }
}

TEST_CASE("bf16 products are summed in f32 and rounded once", "[core]") {
  for (GemmBackend backend : kBackends) {
    const Context ctx = context_with(backend);
    const Tensor ones =
        cast(ctx, from_host(ctx, std::vector<float>(4096, 1.0f), {1, 4096}), Dtype::bf16);
    const Tensor c = empty(ctx, {1, 1}, Dtype::bf16);
    gemm(ctx, ones, ones.transpose(0, 1), c);  // a running bf16 sum stops at 256
    CHECK(doubles(ctx, c)[0] == 4096.0);
  }
}

TEST_CASE("a matrix product that does not fit is refused with its shapes", "[core]") {
  const Context ctx = cpu_context(1);
  const auto f32 = [&](const Shape& shape) { return zeros(ctx, shape, Dtype::f32); };
  CHECK_THROWS_WITH(gemm(ctx, f32({4, 3}), f32({5, 2}), f32({4, 2})),
                    "matmul: inner sizes must agree; got (4, 3) x (5, 2)");
  CHECK_THROWS_WITH(gemm(ctx, f32({4, 3}), f32({3, 2}), f32({4, 3})),
                    "matmul: batch and outer sizes must agree; got (4, 3) x (3, 2) -> (4, 3)");
  CHECK_THROWS_WITH(
      gemm(ctx, f32({2, 4, 3}), f32({3, 3, 2}), f32({2, 4, 2})),
      "matmul: batch and outer sizes must agree; got (2, 4, 3) x (3, 3, 2) -> (2, 4, 2)");
  CHECK_THROWS_WITH(gemm(ctx, f32({3}), f32({3}), f32({1})),
                    "matmul: ranks must be equal and at least 2; got (3) x (3) -> (1)");
  CHECK_THROWS_WITH(gemm(ctx, f32({2, 2}), zeros(ctx, {2, 2}, Dtype::bf16), f32({2, 2})),
                    "matmul: dtypes must be equal, or bf16 x bf16 -> f32; got f32 x bf16 -> f32");
  CHECK_THROWS_WITH(gemm(context_with(GemmBackend::mma), f32({2, 2}), f32({2, 2}), f32({2, 2})),
                    "matmul: backend mma needs a GPU; use naive, tiled or library on the CPU");
  const Tensor ids = zeros(ctx, {2, 2}, Dtype::i32);
  CHECK_THROWS_AS(gemm(ctx, ids, ids, ids), Error);
}

TEST_CASE("gemm backends are named", "[core]") {
  for (GemmBackend backend :
       {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma, GemmBackend::library}) {
    CHECK(gemm_backend_from_name(name_of(backend)) == backend);
  }
  CHECK_THROWS_WITH(gemm_backend_from_name("blas"),
                    "gemm backend must be naive, tiled, mma or library; got \"blas\"");
}
