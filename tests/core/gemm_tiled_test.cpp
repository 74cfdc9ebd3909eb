#include <array>
#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/gemm.h"
#include "support/catch.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

// What only the tiled backend promises: an element's bits depend on its row of a and its column of
// b, and on nothing else.

using namespace xtrain;

namespace {

constexpr Dtype kFloating[] = {Dtype::f64, Dtype::f32, Dtype::bf16};

Context with_backend(GemmBackend backend, int threads = 1) {
  Context ctx = cpu_context(threads);
  ctx.gemm = backend;
  return ctx;
}

Tensor random_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t site) {
  const RandomStream stream = random_stream(11, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  return cast(ctx, from_host(ctx, values, shape), dtype);
}

// The same matrix, stored by columns.
Tensor by_columns(const Context& ctx, const Tensor& x) {
  return contiguous(ctx, x.transpose(-1, -2)).transpose(-1, -2);
}

// The same matrix in the middle of a larger one that is NaN elsewhere.
Tensor inside_nan(const Context& ctx, const Tensor& x) {
  Shape larger = x.shape();
  const int rank = x.rank();
  larger[rank - 2] += 5;
  larger[rank - 1] += 7;
  const std::vector<double> nan(numel_of(larger), std::numeric_limits<double>::quiet_NaN());
  Tensor outer = cast(ctx, from_host(ctx, nan, larger), x.dtype());
  Tensor inner = outer.slice(-2, 2, x.size(-2)).slice(-1, 3, x.size(-1));
  copy(ctx, x, inner);
  return inner;
}

Tensor product(const Context& ctx, const Tensor& a, const Tensor& b, Dtype dtype,
               double alpha = 1.0) {
  Shape shape = a.shape();
  shape[shape.rank() - 1] = b.size(-1);
  Tensor c = empty(ctx, shape, dtype);
  gemm(ctx, a, b, c, alpha);
  return c;
}

std::vector<double> doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

// Equality of every element; no NaN occurs in what is compared.
void check_same(const Context& ctx, const Tensor& x, const Tensor& y) {
  CHECK(doubles(ctx, x) == doubles(ctx, y));
}

double error_of(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Context reference = with_backend(GemmBackend::naive);
  const Tensor expected =
      product(reference, cast(ctx, a, Dtype::f64), cast(ctx, b, Dtype::f64), Dtype::f64);
  return relative_difference(doubles(ctx, c), doubles(ctx, expected));
}

}  // namespace

TEST_CASE("tiled gemm: sizes around every tile, block and panel border", "[gemm]") {
  // Borders: 4, 6, 8 rows a tile and 48, 64, 128 a block; 4 to 32 columns a panel and 256 a block;
  // k in pieces of 16, 64 and 128. One size at a time is varied, then all are odd.
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  std::vector<std::array<int64_t, 3>> sizes = {{65, 33, 97}, {131, 519, 263}, {67, 259, 515}};
  for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 63, 64, 65, 66, 67, 129, 2049}) {
    sizes.push_back({m, 33, 21});
  }
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 255, 256, 257, 511, 513}) {
    sizes.push_back({9, n, 21});
    sizes.push_back({30, n, 21});
  }
  for (int64_t k : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 513}) {
    sizes.push_back({9, 33, k});
    sizes.push_back({520, 33, k});
  }
  // k longer than m: every block packs panels of its own.
  for (int64_t m : {47, 48, 49, 63, 64, 127, 128, 129, 257}) {
    sizes.push_back({m, 33, m});
    sizes.push_back({m, 33, m + 1});
  }
  for (int64_t n : {1, 31, 32, 33, 255, 256, 257}) sizes.push_back({70, n, 129});
  for (int64_t k : {127, 128, 129, 255, 256, 257}) sizes.push_back({99, 45, k});
  for (const Dtype dtype : kFloating) {
    for (const auto& [m, n, k] : sizes) {
      const Tensor a = random_tensor(ctx, {m, k}, dtype, 1);
      const Tensor b = random_tensor(ctx, {k, n}, dtype, 2);
      const Tensor c = product(ctx, a, b, dtype);
      INFO(dtype << " " << m << " x " << n << " x " << k);
      CHECK(error_of(ctx, a, b, c) <= tolerance(dtype, k));
      // However the operands lie, and whatever lies around them.
      check_same(ctx, product(ctx, by_columns(ctx, a), by_columns(ctx, b), dtype), c);
      check_same(ctx, product(ctx, inside_nan(ctx, a), inside_nan(ctx, b), dtype), c);
      const Tensor a_inside = inside_nan(ctx, a.transpose(-1, -2)).transpose(-1, -2);
      const Tensor b_inside = inside_nan(ctx, b.transpose(-1, -2)).transpose(-1, -2);
      check_same(ctx, product(ctx, a_inside, b_inside, dtype), c);
    }
  }
}

TEST_CASE("tiled gemm: a row has the same bits whatever rows lie beside it", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  for (const Dtype dtype : kFloating) {
    const Tensor a = random_tensor(ctx, {150, 300}, dtype, 1);
    const Tensor b = random_tensor(ctx, {300, 70}, dtype, 2);
    const Tensor c = product(ctx, a, b, dtype);
    for (const auto& [first, last] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {0, 149}, {1, 150}, {63, 66}, {149, 150}}) {
      INFO(dtype << " rows " << first << " to " << last);
      check_same(ctx, product(ctx, a.slice(0, first, last - first), b, dtype),
                 c.slice(0, first, last - first));
      const Tensor columns = by_columns(ctx, a).slice(0, first, last - first);
      check_same(ctx, product(ctx, columns, b, dtype), c.slice(0, first, last - first));
    }
  }
}

TEST_CASE("tiled gemm: few rows have the bits that they have among many", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 1);
  for (const Dtype dtype : kFloating) {
    for (const int64_t n : {1, 15, 16, 17, 33, 100}) {
      for (const int64_t k : {0, 1, 15, 16, 17, 64, 300}) {
        const Tensor a = random_tensor(ctx, {40, k}, dtype, 1);
        const Tensor b = random_tensor(ctx, {k, n}, dtype, 2);
        const Tensor c = product(ctx, a, b, dtype, 0.7);
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
          INFO(dtype << " " << rows << " x " << n << " x " << k);
          const Tensor few = inside_nan(ctx, a.slice(0, 11, rows));
          check_same(ctx, product(ctx, few, inside_nan(ctx, b), dtype, 0.7), c.slice(0, 11, rows));
          check_same(ctx, product(ctx, few, by_columns(ctx, b), dtype, 0.7), c.slice(0, 11, rows));
        }
      }
    }
  }
}

// More columns than the L1 holds sums of, in several pieces, and so few that pieces get shorter
// with the number of threads.
TEST_CASE("tiled gemm: few rows of wide matrices have the bits that they have among many",
          "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 1);
  for (const auto& [depth, width] :
       std::vector<std::pair<int64_t, int64_t>>{{67, 5003}, {900, 700}}) {
    for (const Dtype dtype : kFloating) {
      const Tensor a = random_tensor(ctx, {20, depth}, dtype, 1);
      const Tensor b = random_tensor(ctx, {depth, width}, dtype, 2);
      const Tensor c = product(ctx, a, b, dtype, 1.0);
      for (const int64_t rows : {1, 2, 4, 6, 8}) {
        for (const int threads : {1, 3, 16}) {
          INFO(dtype << " " << width << " columns, " << rows << " rows on " << threads
                     << " threads");
          const Context few_ctx = with_backend(GemmBackend::tiled, threads);
          const Tensor few = a.slice(0, 7, rows), expected = c.slice(0, 7, rows);
          check_same(ctx, product(few_ctx, few, b, dtype, 1.0), expected);
          check_same(ctx, product(few_ctx, few, by_columns(ctx, b), dtype, 1.0), expected);
        }
      }
    }
  }
}

TEST_CASE("tiled gemm: a column has the same bits whatever columns lie beside it", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  for (const Dtype dtype : kFloating) {
    const Tensor a = random_tensor(ctx, {37, 300}, dtype, 1);
    const Tensor b = random_tensor(ctx, {300, 290}, dtype, 2);
    const Tensor c = product(ctx, a, b, dtype);
    for (const auto& [first, last] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {0, 289}, {1, 290}, {31, 34}, {289, 290}}) {
      INFO(dtype << " columns " << first << " to " << last);
      check_same(ctx, product(ctx, a, b.slice(1, first, last - first), dtype),
                 c.slice(1, first, last - first));
    }
  }
}

TEST_CASE("tiled gemm: other rows may be NaN or infinite", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled);
  const Tensor a = random_tensor(ctx, {67, 40}, Dtype::f32, 1);
  const Tensor b = random_tensor(ctx, {40, 35}, Dtype::f32, 2);
  const Tensor c = product(ctx, a, b, Dtype::f32);
  Tensor spoilt = empty_like(ctx, a);
  copy(ctx, a, spoilt);
  float* last = spoilt.mutable_data<float>() + 66 * 40;
  last[0] = std::numeric_limits<float>::quiet_NaN();
  last[1] = std::numeric_limits<float>::infinity();
  const Tensor d = product(ctx, spoilt, b, Dtype::f32);
  check_same(ctx, d.slice(0, 0, 66), c.slice(0, 0, 66));
  for (double value : doubles(ctx, d.slice(0, 66, 1))) CHECK(std::isnan(value));
}

TEST_CASE("tiled gemm: a matrix of a batch has the bits of the matrix alone", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  for (const Dtype dtype : kFloating) {
    const Tensor a = random_tensor(ctx, {5, 3, 70, 33}, dtype, 1);
    const Tensor b = random_tensor(ctx, {1, 3, 33, 41}, dtype, 2).expand({5, 3, 33, 41});
    const Tensor c = product(ctx, a, b, dtype);
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        const auto matrix = [&](const Tensor& x) { return x.slice(0, i, 1).slice(1, j, 1); };
        check_same(ctx, product(ctx, matrix(a), matrix(b), dtype), matrix(c));
      }
    }
  }
}

TEST_CASE("tiled gemm: operands that are packed in several chunks", "[gemm]") {
  // Over 2^21 elements of b: as many columns of one matrix, and as many matrices of a batch.
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  const Context one_thread = with_backend(GemmBackend::tiled, 1);
  for (const Shape& left : {Shape{1, 530, 521}, Shape{1, 270, 269}, Shape{40, 270, 257}}) {
    const int64_t n = left[0] > 1 ? 300 : (int64_t{1} << 21) / left[2] + 70;
    const Tensor a = random_tensor(ctx, left, Dtype::f32, 1);
    const Tensor b = random_tensor(ctx, {left[0], left[2], n}, Dtype::f32, 2);
    const Tensor c = product(ctx, a, b, Dtype::f32);
    const auto some_rows = [](const Tensor& x) { return x.slice(1, 250, 9); };
    CHECK(error_of(ctx, some_rows(a), b, some_rows(c)) <= tolerance(Dtype::f32, left[2]));
    check_same(ctx, product(one_thread, a, b, Dtype::f32), c);
    check_same(ctx, product(ctx, by_columns(ctx, a), by_columns(ctx, b), Dtype::f32), c);
  }
}

TEST_CASE("tiled gemm: shared panels and panels of a block's own give the same bits", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  for (const Dtype dtype : kFloating) {
    const Tensor a = random_tensor(ctx, {400, 300}, dtype, 1);
    const Tensor b = random_tensor(ctx, {300, 290}, dtype, 2);
    for (const double alpha : {1.0, 0.7}) {
      const Tensor shared = product(ctx, a, b, dtype, alpha);
      for (const int64_t rows : {9, 64, 137, 299}) {
        INFO(dtype << " " << rows << " rows, alpha " << alpha);
        const Tensor few = a.slice(0, 101, rows), expected = shared.slice(0, 101, rows);
        check_same(ctx, product(ctx, few, b, dtype, alpha), expected);
        check_same(ctx, product(ctx, by_columns(ctx, few), by_columns(ctx, b), dtype, alpha),
                   expected);
      }
    }
  }
}

TEST_CASE("tiled gemm: any number of threads gives the same bits", "[gemm]") {
  for (const Dtype dtype : kFloating) {
    const Context one = with_backend(GemmBackend::tiled, 1);
    // k longer than m, where blocks depend on the number of threads, and not.
    for (const int64_t k : {600, 150}) {
      const Tensor a = random_tensor(one, {3, 203, k}, dtype, 1);
      const Tensor b = random_tensor(one, {3, k, 301}, dtype, 2);
      const Tensor c = product(one, a, b, dtype, 0.7);
      for (int threads : {2, 3, 5, 16}) {
        const Context many = with_backend(GemmBackend::tiled, threads);
        INFO(dtype << " " << threads << " threads, k " << k);
        check_same(one, product(many, a, b, dtype, 0.7), c);
      }
    }
  }
}

TEST_CASE("tiled gemm: alpha and beta act once and the result rounds once, however deep the sum",
          "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled);
  for (const int64_t k : {1, 256, 257, 1000}) {
    const Tensor ones = cast(ctx, from_host(ctx, std::vector<double>(k, 1.0), {1, k}), Dtype::bf16);
    const double start = 1.0 - static_cast<double>(k) / 1024.0;
    Tensor c = from_host(ctx, std::vector<float>{static_cast<float>(start)}, {1, 1});
    gemm(ctx, ones, ones.transpose(0, 1), c, 1.0 / 1024.0, 1.0);
    CHECK(doubles(ctx, c) == std::vector<double>{1.0});
  }
  // 257 + 1 is a number of bf16; 257 alone is not and would round to 256.
  const Tensor ones =
      cast(ctx, from_host(ctx, std::vector<double>(257, 1.0), {1, 257}), Dtype::bf16);
  Tensor c = cast(ctx, from_host(ctx, std::vector<double>{1.0}, {1, 1}), Dtype::bf16);
  gemm(ctx, ones, ones.transpose(0, 1), c, 1.0, 1.0);
  CHECK(doubles(ctx, c) == std::vector<double>{258.0});
}

TEST_CASE("tiled gemm: results that lie by columns or apart have the same bits", "[gemm]") {
  const Context ctx = with_backend(GemmBackend::tiled, 2);
  for (const Dtype dtype : kFloating) {
    const Tensor start = random_tensor(ctx, {45, 37}, dtype, 3);
    for (const auto& [k, beta] : std::vector<std::pair<int64_t, double>>{
             {270, 0.0}, {270, 1.0}, {270, -0.3}, {40, 0.0}, {40, 1.0}, {40, -0.3}}) {
      const Tensor a = random_tensor(ctx, {45, k}, dtype, 1);
      const Tensor b = random_tensor(ctx, {k, 37}, dtype, 2);
      const auto into = [&, factor = beta](Tensor c) {
        copy(ctx, start, c);
        gemm(ctx, a, b, c, 0.6, factor);
        return c;
      };
      const Tensor c = into(empty(ctx, {45, 37}, dtype));
      INFO(dtype << " k " << k << " beta " << beta);
      check_same(ctx, into(empty(ctx, {37, 45}, dtype).transpose(0, 1)), c);
      check_same(ctx, into(empty(ctx, {45, 60}, dtype).slice(1, 11, 37)), c);
    }
  }
}
