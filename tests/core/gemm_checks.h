#pragma once
// What every GEMM backend must satisfy, whatever the device: results against the definition in f64.

#include <cmath>
#include <limits>
#include <vector>

#include "core/copy.h"
#include "core/gemm.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

namespace xtrain {

struct GemmDtypes {
  Dtype operands, result;
};
inline constexpr GemmDtypes kGemmDtypes[] = {{Dtype::f64, Dtype::f64},
                                             {Dtype::f32, Dtype::f32},
                                             {Dtype::bf16, Dtype::bf16},
                                             {Dtype::bf16, Dtype::f32}};

// Those that the context's backend computes to their own precision.
inline std::vector<GemmDtypes> dtypes_of(const Context& ctx) {
  std::vector<GemmDtypes> supported;
  for (const GemmDtypes& d : kGemmDtypes) {
    const bool exact = ctx.gemm != GemmBackend::library_tf32 || d.operands != Dtype::f32;
    if (exact && (ctx.gemm != GemmBackend::mma || d.operands == Dtype::bf16)) {
      supported.push_back(d);
    }
  }
  return supported;
}

inline Tensor random_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t site) {
  const RandomStream stream = random_stream(3, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  return cast(ctx, from_host(ctx, values, shape), dtype);
}

// A random matrix [..., rows, columns], stored by columns when transposed.
inline Tensor random_matrix(const Context& ctx, Shape shape, bool transposed, Dtype dtype,
                            uint64_t site) {
  if (!transposed) return random_tensor(ctx, shape, dtype, site);
  std::swap(shape[shape.rank() - 2], shape[shape.rank() - 1]);
  return random_tensor(ctx, shape, dtype, site).transpose(-1, -2);
}

// The same matrices, in the same order of dimensions, inside of larger ones that hold `around`:
// `before` elements precede each line and `after` follow it.
inline Tensor framed(const Context& ctx, const Tensor& x, double around, int64_t before,
                     int64_t after) {
  const bool transposed = x.stride(-1) != 1;
  const Tensor lines = transposed ? x.transpose(-1, -2) : x;
  Shape larger = lines.shape();
  const int rank = larger.rank();
  larger[rank - 2] += 2;
  larger[rank - 1] += before + after;
  Tensor outer = empty(ctx, larger, x.dtype());
  fill(ctx, outer, around);
  Tensor inner = outer.slice(-2, 1, lines.size(-2)).slice(-1, before, lines.size(-1));
  copy(ctx, lines, inner);
  return transposed ? inner.transpose(-1, -2) : inner;
}

inline std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// alpha * a b + beta * c of [batch, ., .] tensors by the definition, in f64.
inline std::vector<double> product(const Context& ctx, const Tensor& a, const Tensor& b,
                                   const Tensor& c, double alpha, double beta) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1), rows = c.numel() / n;
  const std::vector<double> x = doubles(ctx, a), y = doubles(ctx, b), z = doubles(ctx, c);
  std::vector<double> result(z.size());
  for (int64_t i = 0; i < rows; ++i) {
    double* row = result.data() + i * n;
    for (int64_t l = 0; l < k; ++l) {
      const double factor = alpha * x[i * k + l];
      const double* y_row = y.data() + (i / m * k + l) * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * y_row[j];
    }
    for (int64_t j = 0; j < n && beta != 0.0; ++j) row[j] += beta * z[i * n + j];
  }
  return result;
}

inline void check_product(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c,
                          double alpha = 1.0, double beta = 0.0) {
  INFO(name_of(ctx.gemm) << " " << a.dtype() << " -> " << c.dtype() << " " << a.shape() << " x "
                         << b.shape() << " strides " << a.strides() << " " << b.strides() << " "
                         << c.strides());
  const std::vector<double> expected = product(ctx, a, b, c, alpha, beta);
  gemm(ctx, a, b, c, alpha, beta);
  CHECK(relative_difference(doubles(ctx, c), expected) <= tolerance(c.dtype(), a.size(-1)));
}

inline void check_sizes_and_transposes(const Context& ctx) {
  struct Sizes {
    int64_t m, n, k;
  };
  const Sizes sizes[] = {{1, 1, 1},   {3, 4, 5},    {4, 32, 1},   {31, 33, 3},  {32, 31, 65},
                         {33, 1, 32}, {1, 257, 31}, {65, 32, 33}, {257, 4, 32}, {3, 65, 257}};
  for (const auto& [m, n, k] : sizes) {
    for (const GemmDtypes& d : dtypes_of(ctx)) {
      for (int t = 0; t < 8; ++t) {
        const Tensor a = random_matrix(ctx, {m, k}, t & 1, d.operands, 1);
        const Tensor b = random_matrix(ctx, {k, n}, t & 2, d.operands, 2);
        check_product(ctx, a, b, random_matrix(ctx, {m, n}, t & 4, d.result, 3));
      }
    }
  }
}

inline void check_scaling_and_adding(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    for (bool transposed : {false, true}) {
      const Tensor a = random_tensor(ctx, {33, 17}, d.operands, 1);
      const Tensor b = random_tensor(ctx, {17, 35}, d.operands, 2);
      const auto c = [&] { return random_matrix(ctx, {33, 35}, transposed, d.result, 3); };
      check_product(ctx, a, b, c(), 1.0, 1.0);
      check_product(ctx, a, b, c(), -0.5, 2.0);
      check_product(ctx, a, b, c(), 0.0, 0.5);
    }
  }
}

inline void check_batches(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    // Heads of a packed projection: [B, T, 3, H, D] seen as [B, H, T, D].
    const Tensor packed = random_tensor(ctx, {2, 5, 3, 4, 7}, d.operands, 1);
    const auto part = [&](int64_t i) {
      return packed.slice(2, i, 1).reshape({2, 5, 4, 7}).transpose(1, 2);
    };
    const Tensor q = part(0), k = part(1), v = part(2);
    check_product(ctx, q, k.transpose(-1, -2), random_tensor(ctx, {2, 4, 5, 5}, d.result, 2));
    const Tensor probabilities = random_tensor(ctx, {2, 4, 5, 5}, d.operands, 3);
    const Tensor merged = random_tensor(ctx, {2, 5, 4, 7}, d.result, 4);
    check_product(ctx, probabilities, v, merged.transpose(1, 2), 1.0, 1.0);
    // One weight for every batch.
    const Tensor weight = random_tensor(ctx, {1, 1, 7, 3}, d.operands, 5).expand({2, 4, 7, 3});
    check_product(ctx, q, weight, random_tensor(ctx, {2, 4, 5, 3}, d.result, 6));
    const Tensor row = random_tensor(ctx, {1, 1, 1, 5}, d.operands, 7).expand({2, 4, 6, 5});
    check_product(ctx, row, v, random_tensor(ctx, {2, 4, 6, 7}, d.result, 8));
  }
}

inline void check_matrices_without_contiguous_dimension(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    const Tensor every_second = random_tensor(ctx, {6, 5, 2}, d.operands, 1).slice(2, 1, 1);
    const Tensor x = every_second.reshape({6, 5});
    REQUIRE_FALSE(x.stride(1) == 1);
    const Tensor target = random_tensor(ctx, {6, 6, 2}, d.result, 2).slice(2, 0, 1);
    check_product(ctx, x, x.transpose(0, 1), target.reshape({6, 6}), 1.0, 1.0);
  }
}

inline void check_writes_nothing_beside(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    const Tensor frame = zeros(ctx, {140, 140}, d.result);
    fill(ctx, frame, 9.0);
    const Tensor inside = frame.slice(0, 2, 135).slice(1, 3, 133);
    gemm(ctx, random_tensor(ctx, {135, 8}, d.operands, 1),
         random_tensor(ctx, {8, 133}, d.operands, 2), inside);
    fill(ctx, inside, 9.0);
    CHECK(doubles(ctx, frame) == std::vector<double>(140 * 140, 9.0));
  }
}

inline void check_products_over_nothing(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    INFO(name_of(ctx.gemm) << " " << d.operands << " -> " << d.result);
    const Tensor a = empty(ctx, {3, 0}, d.operands), b = empty(ctx, {0, 4}, d.operands);
    const Tensor c = empty(ctx, {3, 4}, d.result);
    fill(ctx, c, std::numeric_limits<double>::quiet_NaN());
    gemm(ctx, a, b, c);
    CHECK(doubles(ctx, c) == std::vector<double>(12, 0.0));
    fill(ctx, c, 2.0);
    gemm(ctx, a, b, c, 1.0, 0.5);
    CHECK(doubles(ctx, c) == std::vector<double>(12, 1.0));
    const Tensor rows = empty(ctx, {0, 5}, d.operands);
    gemm(ctx, rows, random_tensor(ctx, {5, 4}, d.operands, 1), empty(ctx, {0, 4}, d.result));
    gemm(ctx, random_tensor(ctx, {4, 5}, d.operands, 1), rows.transpose(0, 1),
         empty(ctx, {4, 0}, d.result));
    gemm(ctx, empty(ctx, {0, 2, 3}, d.operands), empty(ctx, {0, 3, 4}, d.operands),
         empty(ctx, {0, 2, 4}, d.result));
  }
}

inline void check_beta_0_overwrites(const Context& ctx) {
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    for (bool transposed : {false, true}) {
      const Tensor c = random_matrix(ctx, {5, 6}, transposed, d.result, 3);
      fill(ctx, c, std::numeric_limits<double>::quiet_NaN());
      check_product(ctx, random_tensor(ctx, {5, 7}, d.operands, 1),
                    random_tensor(ctx, {7, 6}, d.operands, 2), c);
    }
  }
}

inline void check_bias(const Context& ctx) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const Shape sizes[] = {{1, 8, 16}, {9, 33, 7}, {65, 96, 0}, {130, 264, 128}};  // m, n, k
  for (const GemmDtypes& d : dtypes_of(ctx)) {
    if (d.operands != d.result) continue;
    for (const Shape& size : sizes) {
      const int64_t m = size[0], n = size[1], k = size[2];
      const Tensor a = random_tensor(ctx, {m, k}, d.operands, 1);
      const Tensor w = random_tensor(ctx, {n, k}, d.operands, 2);
      const Tensor bias = random_tensor(ctx, {2, n}, d.operands, 3).slice(0, 1, 1).reshape({n});
      const Tensor rows = empty(ctx, {m, n}, d.result);
      copy(ctx, bias.expand({m, n}), rows);
      const std::vector<double> expected = product(ctx, a, w.transpose(0, 1), rows, 1.0, 1.0);
      for (bool transposed : {false, true}) {
        INFO(name_of(ctx.gemm) << " " << d.operands << " " << size << " " << transposed);
        const Tensor c = random_matrix(ctx, {m, n}, transposed, d.result, 4);
        fill(ctx, c, kNaN);
        gemm_bias(ctx, a, w.transpose(0, 1), bias, c);
        CHECK(relative_difference(doubles(ctx, c), expected) <= tolerance(d.result, k + 1));
      }
    }
  }
}

// The GELU that a backend computes in passing is that of the sums it rounds to c. Whether it does.
inline bool check_bias_and_gelu(const Context& ctx, const Shape& size, Dtype dtype) {
  const int64_t m = size[0], n = size[1], k = size[2];
  const Tensor a = random_tensor(ctx, {m, k}, dtype, 1), w = random_tensor(ctx, {n, k}, dtype, 2);
  const Tensor bias = random_tensor(ctx, {n}, dtype, 3);
  const Tensor c = empty(ctx, {m, n}, dtype), gelu = empty(ctx, {m, n}, dtype);
  const Tensor plain = empty(ctx, {m, n}, dtype);
  fill(ctx, c, std::numeric_limits<double>::quiet_NaN());
  fill(ctx, gelu, std::numeric_limits<double>::quiet_NaN());
  gemm_bias(ctx, a, w.transpose(0, 1), bias, plain);
  if (!gemm_bias_gelu(ctx, a, w.transpose(0, 1), bias, c, gelu)) return false;
  const std::vector<double> x = doubles(ctx, c), y = doubles(ctx, gelu);
  CHECK(relative_difference(x, doubles(ctx, plain)) <= tolerance(dtype, k + 1));
  std::vector<double> expected;
  for (double v : x) {
    const double u = std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v);
    expected.push_back(0.5 * v * (1.0 + std::tanh(u)));
  }
  CHECK(relative_difference(y, expected) <= tolerance(dtype));
  return true;
}

// A running bf16 sum would stop at 256.
inline void check_bf16_sums_in_f32(const Context& ctx) {
  const Tensor ones =
      cast(ctx, from_host(ctx, std::vector<float>(4096, 1.0f), {1, 4096}), Dtype::bf16);
  const Tensor c = empty(ctx, {1, 1}, Dtype::bf16);
  gemm(ctx, ones, ones.transpose(0, 1), c);
  CHECK(doubles(ctx, c)[0] == 4096.0);
}

}  // namespace xtrain
