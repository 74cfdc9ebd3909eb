#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "ops/norm/norm.h"
#include "ops/op_case.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr double kEps = 1e-5;

OpCase add_norm_case(NormKind kind, const Shape& shape, bool parameters) {
  const Shape vector{shape[1]};
  OpCase c;
  c.op = "add_norm";
  c.inputs = {{.name = "x", .shape = shape}, {.name = "branch", .shape = shape}};
  if (parameters) c.inputs.push_back({.name = "weight", .shape = vector, .fill = Fill::nonzero});
  if (parameters && kind == NormKind::layer) c.inputs.push_back({.name = "bias", .shape = vector});
  c.reduction = std::max(shape[0], shape[1]);
  c.run = [kind](const Context& ctx, std::span<const Var> in) {
    const Var weight = in.size() > 2 ? in[2] : Var(), bias = in.size() > 3 ? in[3] : Var();
    const AddNorm r = add_norm(ctx, in[0], in[1], weight, bias, kind, kEps);
    return std::vector<Var>{r.sum, r.normed};
  };
  return c;
}

void check_against_cpu(const OpCase& c) {
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype);
    const OpValues oracle = run_case(cpu_context(), c, {.dtype = Dtype::f64, .rounded = dtype});
    const OpRun run{.dtype = dtype, .rounded = dtype};
    const OpValues got = run_case(test_cuda_context(), c, run);
    for (size_t i = 0; i < got.names.size(); ++i) {
      INFO(got.names[i]);
      CHECK(relative_difference(got.values[i], oracle.values[i]) <= tolerance(dtype, c.reduction));
    }
    CHECK(run_case(test_cuda_context(), c, run).values == got.values);
  }
}

// layer_norm in f32 without weight and bias; upstream gradient 0, 1, 2, ...
struct PlainNorm {
  std::vector<float> y, dx;

  explicit PlainNorm(const std::vector<float>& row) {
    const Context& ctx = test_cuda_context();
    const Shape shape{1, static_cast<int64_t>(row.size())};
    std::vector<float> upstream(row.size());
    for (size_t i = 0; i < row.size(); ++i) upstream[i] = static_cast<float>(i);
    Tape tape(ctx);
    const Var x = tape.leaf(from_host(ctx, row, shape));
    const Var normed = layer_norm(ctx, x, Var(), Var(), kEps);
    const Tensor dy = from_host(ctx, upstream, shape);
    tape.backward(std::span(&normed, 1), std::span(&dy, 1));
    y = to_host<float>(ctx, normed.value);
    dx = to_host<float>(ctx, tape.grad(x));
  }
};

// The largest error of a norm of uniform numbers in [-1, 1] in `dtype`, and one unit in the last
// place of the largest result.
struct WorstError {
  double error = 0.0, unit = 0.0;
};

WorstError worst_error(NormKind kind, Dtype dtype) {
  OpCase c;
  c.inputs = {{.name = "x", .shape = {4, 768}, .fill = Fill::given},
              {.name = "weight", .shape = {768}, .fill = Fill::given}};
  for (CaseInput& input : c.inputs) {
    const RandomStream stream = random_stream(1, 0, input.shape.rank());
    for (int64_t i = 0; i < numel_of(input.shape); ++i) {
      input.values.push_back(2.0 * stream.uniform(0, i) - 1.0);
    }
  }
  c.run = [kind](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{norm(ctx, in[0], in[1], Var(), kind, kEps)};
  };
  const auto y = run_case(test_cuda_context(), c, {.dtype = dtype, .rounded = dtype}).values[0];
  const auto oracle = run_case(cpu_context(), c, {.dtype = Dtype::f64, .rounded = dtype}).values[0];
  WorstError worst;
  double largest = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    worst.error = std::max(worst.error, std::abs(y[i] - oracle[i]));
    largest = std::max(largest, std::abs(oracle[i]));
  }
  worst.unit = std::ldexp(epsilon_of(dtype), std::ilogb(largest));
  return worst;
}

}  // namespace

TEST_CASE("norms of narrow, wide and very long rows on the GPU", "[cuda]") {
  // Rows of less than a warp, of several warps, of more than registers hold; whole packs of 16
  // bytes and not; more rows than blocks.
  for (const Shape& shape :
       {Shape{700, 24}, Shape{3000, 136}, Shape{300, 768}, Shape{9, 1000}, Shape{70, 1001},
        Shape{5, 4096}, Shape{7, 8192}, Shape{3, 12001}, Shape{2, 20000}, Shape{2, 20001}}) {
    for (NormKind kind : {NormKind::layer, NormKind::rms}) {
      INFO(name_of(kind) << " of " << shape);
      check_against_cpu(add_norm_case(kind, shape, true));
    }
  }
  check_against_cpu(add_norm_case(NormKind::layer, {300, 768}, false));
}

TEST_CASE("layer norm of a constant row on the GPU is zero and has a finite gradient", "[cuda]") {
  for (float value : {1234.0f, 0.1f, -3e7f, 0.0f}) {
    for (int width : {65, 256, 3000, 20000}) {
      INFO(value << " in " << width << " columns");
      const PlainNorm constant(std::vector<float>(width, value));
      CHECK(constant.y == std::vector<float>(width, 0.0f));
      // r (dy - mean(dy)) with r = 1 / sqrt(eps).
      const double scale = width / std::sqrt(kEps);
      for (int i : {0, width / 3, width - 1}) {
        const double expected = (i - 0.5 * (width - 1)) / std::sqrt(kEps);
        CHECK(std::abs(constant.dx[i] - expected) <= scale * tolerance(Dtype::f32, width));
      }
    }
  }
}

TEST_CASE("layer norm on the GPU of values with a large mean keeps its digits", "[cuda]") {
  const PlainNorm large({40000.0f, 40001.0f, 40002.0f, 40003.0f});
  const double expected[] = {-1.341635, -0.447212, 0.447212, 1.341635};
  for (int i = 0; i < 4; ++i) {
    CHECK(std::abs(large.y[i] - expected[i]) < 1e-3);
    CHECK(std::abs(large.dx[i]) < 1e-3);
  }
}

TEST_CASE("a norm on the GPU passes a NaN on to its own row only", "[cuda]") {
  const Context& ctx = test_cuda_context();
  std::vector<float> values(8 * 100, 1.0f);
  values[3 * 100 + 7] = std::nanf("");
  const Var y = rms_norm(ctx, from_host(ctx, values, {8, 100}), Var(), kEps);
  const std::vector<float> normed = to_host<float>(ctx, y.value);
  for (int i = 0; i < 800; ++i) CHECK(std::isnan(normed[i]) == (i / 100 == 3));
}

TEST_CASE("errors of norms of 4 x 768 on the GPU stay below the bars", "[cuda]") {
  const auto below = [](double bar, const WorstError& worst) {
    return worst.error <= std::max(bar, worst.unit);
  };
  CHECK(below(7.2e-7, worst_error(NormKind::rms, Dtype::f32)));
  CHECK(below(1.7e-6, worst_error(NormKind::layer, Dtype::f32)));
  CHECK(below(7.0e-3, worst_error(NormKind::rms, Dtype::bf16)));
}
