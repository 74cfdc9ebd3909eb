// Measures the GEMM backends on the shapes that training meets and prints a table.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/gemm.h"
#include "tools/device.h"
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

// The same in training GPT-2 124M on 32 x 1024 tokens, and one layer of a larger model.
const std::vector<Product> kGpuProducts = {
    {"square", 1, 4, 4, 4, false, false},
    {"square", 1, 64, 64, 64, false, false},
    {"square", 1, 256, 256, 256, false, false},
    {"odd", 1, 65, 33, 97, false, false},
    {"square", 1, 1024, 1024, 1024, false, false},
    {"square", 1, 4096, 4096, 4096, false, false},
    {"x W^T    qkv", 1, 32768, 2304, 768, false, true},
    {"dY W     qkv", 1, 32768, 768, 2304, false, false},
    {"dY^T X   qkv", 1, 2304, 768, 32768, true, false},
    {"x W^T    out", 1, 32768, 768, 768, false, true},
    {"dY W     out", 1, 32768, 768, 768, false, false},
    {"dY^T X   out", 1, 768, 768, 32768, true, false},
    {"x W^T    up", 1, 32768, 3072, 768, false, true},
    {"dY W     up", 1, 32768, 768, 3072, false, false},
    {"dY^T X   up", 1, 3072, 768, 32768, true, false},
    {"x W^T    down", 1, 32768, 768, 3072, false, true},
    {"dY W     down", 1, 32768, 3072, 768, false, false},
    {"dY^T X   down", 1, 768, 3072, 32768, true, false},
    {"x W^T    50304 words", 1, 32768, 50304, 768, false, true},
    {"dY W     50304 words", 1, 32768, 768, 50304, false, false},
    {"dY^T X   50304 words", 1, 50304, 768, 32768, true, false},
    {"x W^T    4096 wide", 1, 8192, 4096, 4096, false, true},
    {"dY W     4096 wide", 1, 8192, 4096, 4096, false, false},
    {"dY^T X   4096 wide", 1, 4096, 4096, 8192, true, false},
    {"q k^T    384 heads", 384, 1024, 1024, 64, false, true},
    {"p v      384 heads", 384, 1024, 64, 1024, false, false},
    {"p^T dO   384 heads", 384, 1024, 64, 1024, true, false},
};

// Random numbers, which a GPU multiplies slower than zeros, filled with copies of one block. The
// block's prime length keeps rows of a matrix from being equal.
Tensor random_tensor(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t site) {
  constexpr int64_t kBlock = 100003;
  const RandomStream stream = random_stream(1, 0, site);
  std::vector<float> values(kBlock);
  for (int64_t i = 0; i < kBlock; ++i) values[i] = 2.0f * stream.uniform(0, i) - 1.0f;
  const Tensor block = cast(ctx, from_host(ctx, values, {1, kBlock}), dtype);
  const Tensor x = empty(ctx, shape, dtype), flat = x.reshape({1, x.numel()});
  const int64_t blocks = x.numel() / kBlock, whole = blocks * kBlock;
  if (blocks > 0)
    copy(ctx, block.expand({blocks, kBlock}), flat.slice(1, 0, whole).reshape({blocks, kBlock}));
  copy(ctx, block.slice(1, 0, x.numel() - whole), flat.slice(1, whole, x.numel() - whole));
  return x;
}

Tensor random_operand(const Context& ctx, Dtype dtype, const Product& p, int64_t rows,
                      int64_t columns, bool transposed, uint64_t site) {
  const Shape stored = transposed ? Shape{p.batch, columns, rows} : Shape{p.batch, rows, columns};
  const Tensor x = random_tensor(ctx, stored, dtype, site);
  return transposed ? x.transpose(-1, -2) : x;
}

struct Operands {
  Tensor a, b, c;
};

// On a GPU as many sets as exceed its cache, used in turn: training seldom finds operands there.
std::vector<Operands> operands_of(const Context& ctx, Dtype dtype, const Product& p) {
  constexpr int64_t kExceedsCache = int64_t{256} << 20, kMostSets = 64;
  const int64_t bytes = p.batch * (p.m * p.k + p.k * p.n + p.m * p.n) * size_of(dtype);
  const int64_t sets =
      ctx.device.is_cuda() ? std::clamp(kExceedsCache / bytes, int64_t{1}, kMostSets) : 1;
  std::vector<Operands> operands;
  for (int64_t i = 0; i < sets; ++i) {
    operands.push_back({random_operand(ctx, dtype, p, p.m, p.k, p.a_transposed, 2 * i),
                        random_operand(ctx, dtype, p, p.k, p.n, p.b_transposed, 2 * i + 1),
                        empty(ctx, {p.batch, p.m, p.n}, dtype)});
  }
  return operands;
}

double seconds_of_one(const Context& ctx, const std::vector<Operands>& operands, int repetitions) {
  ctx.queue->synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) {
    const Operands& x = operands[i % operands.size()];
    gemm(ctx, x.a, x.b, x.c);
  }
  ctx.queue->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         repetitions;
}

// The samples of each backend, in seconds; they take turns, so that all meet the same disturbances.
// A sample on a GPU lasts long enough to hide that the host starts and ends it.
std::vector<std::vector<double>> measure(Context ctx, const std::vector<GemmBackend>& backends,
                                         Dtype dtype, const Product& p, double budget) {
  const std::vector<Operands> operands = operands_of(ctx, dtype, p);
  const double shortest_sample = ctx.device.is_cuda() ? 5e-3 : 100e-6;  // seconds
  const int most_rounds = ctx.device.is_cuda() ? 20 : 200;
  std::vector<std::vector<double>> samples(backends.size());
  std::vector<double> expected(backends.size());
  for (size_t i = 0; i < backends.size(); ++i) {
    ctx.gemm = backends[i];
    expected[i] = seconds_of_one(ctx, operands, 1);  // also sets up what is set up once
    expected[i] = seconds_of_one(ctx, operands, 1);
  }
  double spent = 0.0;
  for (int round = 0; round == 0 || (round < most_rounds && spent < budget); ++round) {
    for (size_t i = 0; i < backends.size(); ++i) {
      ctx.gemm = backends[i];
      const int repetitions = static_cast<int>(std::max(1.0, shortest_sample / expected[i]));
      const double seconds = seconds_of_one(ctx, operands, repetitions);
      expected[i] = std::min(expected[i], seconds);
      samples[i].push_back(seconds);
      spent += seconds * repetitions;
    }
  }
  return samples;
}

// The shortest sample on the CPU, where disturbances only delay; the median on a GPU, whose clock
// also varies.
double typical_seconds(const Context& ctx, std::vector<double> samples) {
  const auto at = samples.begin() + (ctx.device.is_cuda() ? samples.size() / 2 : 0);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

void print_row(const Context& ctx, const Product& p,
               const std::vector<std::vector<double>>& samples) {
  std::vector<double> seconds;
  for (const std::vector<double>& s : samples) seconds.push_back(typical_seconds(ctx, s));
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const double operations = 2.0 * static_cast<double>(p.batch * p.m * p.n * p.k);
  std::printf("%-22s %5ld %6ld %6ld %6ld", p.name, p.batch, p.m, p.n, p.k);
  for (double s : seconds) {
    if (ctx.device.is_cuda()) {
      std::printf(" %9.4g %4.0f%%", 1e-12 * operations / s, 100.0 * best / s);
    } else {
      std::printf(" %9.1f %4.0f%%", 1e-9 * operations / s, 100.0 * best / s);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<std::string> default_backends(const Context& ctx, Dtype dtype) {
  if (ctx.device.is_cpu()) return {"tiled", "library"};
  if (dtype == Dtype::bf16) return {"naive", "tiled", "mma", "library"};
  if (dtype == Dtype::f32) return {"naive", "tiled", "library", "library_tf32"};
  return {"naive", "tiled", "library"};
}

int bench_gemm(int argc, char** argv) {
  CLI::App app(
      "Times the matrix products of training by each GEMM backend: GFLOP/s (on a GPU TFLOP/s) and "
      "share of the best.",
      "bench_gemm");
  std::vector<std::string> names;
  std::string device = "cpu", dtype = "f32";
  int threads = 0;
  double budget = 0.3;
  app.add_option("backends", names,
                 "naive, tiled, library; on a GPU also mma and library_tf32; the default is what "
                 "compares on the device");
  add_device_option(app, device);
  app.add_option("--dtype", dtype, "f64, f32 or bf16")->capture_default_str();
  app.add_option("--threads", threads, "0: one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--seconds", budget, "time spent on each row")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (!parse_arguments(app, argc, argv)) return 0;
  const Dtype element = dtype_from_name(dtype);
  const Context ctx = context_on(device, threads);
  if (names.empty()) names = default_backends(ctx, element);
  std::vector<GemmBackend> backends;
  for (const std::string& name : names) backends.push_back(gemm_backend_from_name(name));
  std::printf("%s, ", dtype.c_str());
  if (ctx.device.is_cuda()) {
    std::printf("TFLOP/s on a GPU\n");
  } else {
    std::printf("%d threads\n", ctx.threads);
  }
  std::printf("%-22s %5s %6s %6s %6s", "product", "batch", "m", "n", "k");
  for (const std::string& name : names) std::printf(" %9.9s %5s", name.c_str(), "");
  std::printf("\n");
  for (const Product& p : ctx.device.is_cuda() ? kGpuProducts : kProducts) {
    print_row(ctx, p, measure(ctx, backends, element, p, budget));
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_gemm", [&] { return xtrain::bench_gemm(argc, argv); });
}
