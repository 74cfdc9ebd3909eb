#include "core/error.h"
#include "core/gemm_checks.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

constexpr GemmBackend kBackends[] = {GemmBackend::naive, GemmBackend::tiled, GemmBackend::library};

Context context_with(GemmBackend backend, int threads = 1) {
  Context ctx = cpu_context(threads);
  ctx.gemm = backend;
  return ctx;
}

}  // namespace

TEST_CASE("every gemm backend computes every size, transpose and dtype", "[core]") {
  for (GemmBackend backend : kBackends) check_sizes_and_transposes(context_with(backend));
}

TEST_CASE("gemm scales the product and adds to what is there", "[core]") {
  for (GemmBackend backend : kBackends) check_scaling_and_adding(context_with(backend));
}

TEST_CASE("gemm takes batches with gaps, repeated batches and any order of batches", "[core]") {
  for (GemmBackend backend : kBackends) check_batches(context_with(backend, 2));
}

TEST_CASE("gemm takes matrices of which neither dimension is contiguous", "[core]") {
  for (GemmBackend backend : kBackends) {
    check_matrices_without_contiguous_dimension(context_with(backend));
  }
}

TEST_CASE("gemm writes nothing beside its result", "[core]") {
  for (GemmBackend backend : kBackends) check_writes_nothing_beside(context_with(backend, 2));
}

TEST_CASE("a product over nothing is 0, or beta times what is there", "[core]") {
  for (GemmBackend backend : kBackends) check_products_over_nothing(context_with(backend));
}

TEST_CASE("beta 0 overwrites what is there, NaN included", "[core]") {
  for (GemmBackend backend : kBackends) check_beta_0_overwrites(context_with(backend));
}

TEST_CASE("gemm has the same bits for any number of threads", "[core]") {
  for (GemmBackend backend : kBackends) {
    for (const GemmDtypes& d : kGemmDtypes) {
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
  for (GemmBackend backend : kBackends) check_bf16_sums_in_f32(context_with(backend));
}

TEST_CASE("a bias is added to every row of a product", "[core]") {
  for (GemmBackend backend : kBackends) check_bias(context_with(backend));
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
  CHECK_THROWS_WITH(gemm_bias(ctx, f32({4, 3}), f32({3, 2}), f32({3}), f32({4, 2})),
                    "matmul: c must be a matrix and bias have shape (2); got (4, 2) and (3)");
  CHECK_THROWS_WITH(
      gemm_bias(ctx, f32({4, 3}), f32({3, 2}), zeros(ctx, {2}, Dtype::f64), f32({4, 2})),
      "matmul: dtypes must be equal; got f32 -> f32 and bias f64");
  const Tensor ids = zeros(ctx, {2, 2}, Dtype::i32);
  CHECK_THROWS_AS(gemm(ctx, ids, ids, ids), Error);
}

TEST_CASE("gemm backends are named", "[core]") {
  for (GemmBackend backend :
       {GemmBackend::naive, GemmBackend::tiled, GemmBackend::mma, GemmBackend::library}) {
    CHECK(gemm_backend_from_name(name_of(backend)) == backend);
  }
  CHECK_THROWS_WITH(
      gemm_backend_from_name("blas"),
      "gemm backend must be naive, tiled, mma, library or library_tf32; got \"blas\"");
}
