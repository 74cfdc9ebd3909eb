// Measures the GEMM backends on the shapes that training meets and prints a table.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "core/gemm.h"
#include "core/parallel.h"
#include "tools/program.h"

namespace xtrain {
namespace {

// c[m, n] = a[m, k] b[k, n]; a transposed operand is stored as its transpose.
struct Product {
  const char* name;
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
};

// x W^T, dY W and dY^T X of linear layers, attention's products a head, and outliers. Rows are
// tokens of a batch: 16 x 128 of tiny.json, 12 x 64 of shakespeare_char_cpu.json.
const std::vector<Product> kProducts = {
    {"x W^T    qkv", 1, 2048, 384, 128, false, true},
    {"x W^T    out", 1, 2048, 128, 128, false, true},
    {"x W^T    up", 1, 2048, 768, 128, false, true},
    {"x W^T    vocabulary", 1, 2048, 256, 128, false, true},
    {"x W^T    down", 1, 2048, 128, 384, false, true},
    {"dY W     qkv", 1, 2048, 128, 384, false, false},
    {"dY W     up", 1, 2048, 128, 768, false, false},
    {"dY W     down", 1, 2048, 384, 128, false, false},
    {"dY^T X   qkv", 1, 384, 128, 2048, true, false},
    {"dY^T X   out", 1, 128, 128, 2048, true, false},
    {"dY^T X   up", 1, 768, 128, 2048, true, false},
    {"dY^T X   down", 1, 128, 384, 2048, true, false},
    {"x W^T    qkv", 1, 768, 384, 128, false, true},
    {"x W^T    up", 1, 768, 512, 128, false, true},
    {"x W^T    down", 1, 768, 128, 512, false, true},
    {"dY W     up", 1, 768, 128, 512, false, false},
    {"dY^T X   qkv", 1, 384, 128, 768, true, false},
    {"dY^T X   up", 1, 512, 128, 768, true, false},
    {"q k^T    64 heads", 64, 128, 128, 32, false, true},
    {"p v      64 heads", 64, 128, 32, 128, false, false},
    {"p^T dO   64 heads", 64, 128, 32, 128, true, false},
    {"square", 1, 1024, 1024, 1024, false, false},
    {"square   x W^T", 1, 1024, 1024, 1024, false, true},
    {"odd", 1, 65, 33, 97, false, false},
    {"x W^T    50304 words", 1, 256, 50304, 128, false, true},
    {"dY W     50304 words", 1, 256, 128, 50304, false, false},
    {"one row", 1, 1, 384, 128, false, true},
};

Tensor random_operand(const Context& ctx, Dtype dtype, const Product& p, int64_t rows,
                      int64_t columns, bool transposed, uint64_t site) {
  const Shape stored = transposed ? Shape{p.batch, columns, rows} : Shape{p.batch, rows, columns};
  Tensor x = empty(ctx, stored, dtype);
  dispatch_floating(dtype, "bench_gemm", [&](auto scalar) {
    using T = decltype(scalar);
    T* values = x.mutable_data<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      values[i] = static_cast<T>(static_cast<float>((i * 2654435761u + site) % 1024) / 512.0f - 1);
    }
  });
  return transposed ? x.transpose(-1, -2) : x;
}

double seconds_of_one(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c,
                      int repetitions) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) gemm(ctx, a, b, c);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         repetitions;
}

// The shortest time of each backend; they take turns, so that all meet the same disturbances.
std::vector<double> fastest_seconds(Context ctx, const std::vector<GemmBackend>& backends,
                                    Dtype dtype, const Product& p, double budget) {
  const Tensor a = random_operand(ctx, dtype, p, p.m, p.k, p.a_transposed, 1);
  const Tensor b = random_operand(ctx, dtype, p, p.k, p.n, p.b_transposed, 2);
  Tensor c = empty(ctx, {p.batch, p.m, p.n}, dtype);
  constexpr double kShortestSample = 100e-6;  // seconds
  constexpr int kRounds = 200;
  std::vector<double> fastest(backends.size(), std::numeric_limits<double>::infinity());
  double spent = 0.0;
  for (int round = 0; round == 0 || (round < kRounds && spent < budget); ++round) {
    for (size_t i = 0; i < backends.size(); ++i) {
      ctx.gemm = backends[i];
      const int repetitions = static_cast<int>(std::max(1.0, kShortestSample / fastest[i]));
      const double seconds = seconds_of_one(ctx, a, b, c, repetitions);
      fastest[i] = std::min(fastest[i], seconds);
      spent += seconds * repetitions;
    }
  }
  return fastest;
}

void print_row(const Product& p, const std::vector<double>& seconds) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const double giga = 2e-9 * static_cast<double>(p.batch * p.m * p.n * p.k);
  std::printf("%-22s %5ld %6ld %6ld %6ld", p.name, p.batch, p.m, p.n, p.k);
  for (double s : seconds) std::printf(" %9.1f %4.0f%%", giga / s, 100.0 * best / s);
  std::printf("\n");
  std::fflush(stdout);
}

int bench_gemm(int argc, char** argv) {
  CLI::App app(
      "Times the matrix products of training by each GEMM backend: GFLOP/s and share of "
      "the best.",
      "bench_gemm");
  app.option_defaults()->always_capture_default();
  std::vector<std::string> names = {"tiled", "library"};
  std::string dtype = "f32";
  int threads = 0;
  double budget = 0.3;
  app.add_option("backends", names, "naive, tiled, library");
  app.add_option("--dtype", dtype, "f64, f32 or bf16");
  app.add_option("--threads", threads, "0: one a core")->check(CLI::Range(0, 1024));
  app.add_option("--seconds", budget, "time spent on each row")->check(CLI::PositiveNumber);
  if (!parse_arguments(app, argc, argv)) return 0;
  const Dtype element = dtype_from_name(dtype);
  std::vector<GemmBackend> backends;
  for (const std::string& name : names) backends.push_back(gemm_backend_from_name(name));
  const Context ctx = cpu_context(threads);
  bind_threads(ctx.threads);
  std::printf("%s, %d threads\n%-22s %5s %6s %6s %6s", dtype.c_str(), ctx.threads, "product",
              "batch", "m", "n", "k");
  for (const std::string& name : names) std::printf(" %9s %5s", name.c_str(), "");
  std::printf("\n");
  for (const Product& p : kProducts) {
    print_row(p, fastest_seconds(ctx, backends, element, p, budget));
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_gemm", [&] { return xtrain::bench_gemm(argc, argv); });
}
