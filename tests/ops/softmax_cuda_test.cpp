#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/copy.h"
#include "ops/op_case.h"
#include "ops/softmax_run.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

OpCase softmax_case(const Shape& shape, bool log, double low = -3.0, double high = 3.0) {
  OpCase c;
  c.op = log ? "log_softmax" : "softmax";
  c.inputs = {{.name = "x", .shape = shape, .fill = Fill::given}};
  const RandomStream stream = random_stream(2, 0, 0);
  for (int64_t i = 0; i < numel_of(shape); ++i) {
    c.inputs[0].values.push_back(low + (high - low) * stream.uniform(0, i));
  }
  c.reduction = shape[1];
  c.run = [log](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{log ? log_softmax(ctx, in[0]) : softmax(ctx, in[0])};
  };
  return c;
}

using Result = RowResult;

Result run_row(Var (*function)(const Context&, const Var&), const std::vector<float>& row) {
  return run_row(test_cuda_context(), function, row);
}

// Widths of one warp, one block, and more than a block holds.
constexpr int kWidths[] = {3, 70, 1500, 20000};

// The largest error of softmax in f32 of 8 x 256 uniform numbers, and one unit in the last place of
// the largest probability.
struct WorstError {
  double error = 0.0, unit = 0.0;

  WorstError(double low, double high) {
    const OpCase c = softmax_case({8, 256}, false, low, high);
    const auto p = run_case(test_cuda_context(), c, {.dtype = Dtype::f32, .rounded = Dtype::f32});
    const auto oracle = run_case(cpu_context(), c, {.dtype = Dtype::f64, .rounded = Dtype::f32});
    double largest = 0.0;
    for (size_t i = 0; i < p.values[0].size(); ++i) {
      error = std::max(error, std::abs(p.values[0][i] - oracle.values[0][i]));
      largest = std::max(largest, oracle.values[0][i]);
    }
    unit = std::ldexp(epsilon_of(Dtype::f32), std::ilogb(largest));
  }

  bool below(double bar) const { return error <= std::max(bar, unit); }
};

}  // namespace

TEST_CASE("softmax of narrow, wide and very long rows on the GPU", "[cuda]") {
  for (const Shape& shape : {Shape{700, 24}, Shape{300, 768}, Shape{9, 1000}, Shape{70, 1001},
                             Shape{5, 4096}, Shape{3, 12001}, Shape{2, 20000}, Shape{2, 50257}}) {
    for (bool log : {false, true}) {
      const OpCase c = softmax_case(shape, log);
      for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        INFO(c.op << " of " << shape << " in " << dtype);
        const OpRun run{.dtype = dtype, .rounded = dtype};
        const OpValues oracle = run_case(cpu_context(), c, {.dtype = Dtype::f64, .rounded = dtype});
        const OpValues got = run_case(test_cuda_context(), c, run);
        for (size_t i = 0; i < got.names.size(); ++i) {
          INFO(got.names[i]);
          CHECK(relative_difference(got.values[i], oracle.values[i]) <=
                tolerance(dtype, c.reduction));
        }
        CHECK(run_case(test_cuda_context(), c, run).values == got.values);
      }
    }
  }
}

TEST_CASE("an entry of minus infinity on the GPU has probability and gradient zero", "[cuda]") {
  for (int width : kWidths) {
    INFO(width);
    std::vector<float> row(width, 0.5f);
    row[0] = row[width - 1] = -kInfinity;
    const Result p = run_row(softmax, row), logs = run_row(log_softmax, row);
    for (int i : {0, width - 1}) {
      CHECK(p.y[i] == 0.0f);
      CHECK(p.dx[i] == 0.0f);
      CHECK(logs.y[i] == -kInfinity);
      CHECK(logs.dx[i] == 0.0f);
    }
    const double share = 1.0 / (width - 2);
    CHECK(std::abs(p.y[1] - share) <= share * tolerance(Dtype::f32, width));
    CHECK(std::abs(logs.y[1] - std::log(share)) <=
          tolerance(Dtype::f32, width) * std::max(1.0, -std::log(share)));
  }
}

TEST_CASE("a row of only minus infinity on the GPU gives zero and zero gradient", "[cuda]") {
  for (int width : kWidths) {
    INFO(width);
    check_row_of_minus_infinity(test_cuda_context(), width);
  }
}

TEST_CASE("softmax on the GPU passes a NaN on instead of hiding it", "[cuda]") {
  const float nan = std::nanf("");
  for (int width : kWidths) {
    INFO(width);
    for (float others : {1.0f, -kInfinity, nan}) {
      std::vector<float> row(width, others);
      row[1] = nan;
      const std::vector<float> p = run_row(softmax, row).y;
      CHECK(std::all_of(p.begin(), p.end(), [](float v) { return std::isnan(v); }));
    }
  }
}

TEST_CASE("errors of softmax on the GPU stay below the bars", "[cuda]") {
  CHECK(WorstError(-1, 1).below(1.4e-9));
  CHECK(WorstError(1000, 1010).below(1.5e-8));
  CHECK(WorstError(-2000, 2000).below(1.5e-8));

  const OpCase rows = softmax_case({4, 2048}, false, -1, 1);
  const OpRun run{.dtype = Dtype::f32, .rounded = Dtype::f32};
  const std::vector<double> p = run_case(test_cuda_context(), rows, run).values[0];
  for (int row = 0; row < 4; ++row) {
    const auto begin = p.begin() + row * 2048;
    CHECK(std::abs(std::accumulate(begin, begin + 2048, 0.0) - 1.0) <= 1e-6);
  }
}
