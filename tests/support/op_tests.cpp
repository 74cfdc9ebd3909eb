#include "support/op_tests.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/gpu.h"
#include "support/tolerance.h"

namespace xtrain {
namespace {

// The same elements in memory of another order.
Tensor in_layout(const Context& ctx, const Tensor& x, OpRun::Layout layout) {
  if (layout == OpRun::Layout::contiguous || x.rank() < 2) return x;
  if (layout == OpRun::Layout::transposed) {
    return contiguous(ctx, x.transpose(0, -1)).transpose(0, -1);
  }
  Shape doubled = x.shape();
  doubled[0] *= 2;
  const Tensor wide = zeros(ctx, doubled, x.dtype());
  Shape pairs{x.shape()[0], 2};
  for (int i = 1; i < x.rank(); ++i) pairs.push_back(x.shape()[i]);
  const Tensor rows = wide.reshape(pairs).slice(1, 1, 1).reshape(x.shape());
  copy(ctx, x, rows);
  return rows;
}

Tensor upstream_gradient(const Context& ctx, const Tensor& y, uint64_t site, OpRun::Upstream kind) {
  if (kind == OpRun::Upstream::ones) {
    Tensor ones = empty_like(ctx, y);
    fill(ctx, ones, 1.0);
    return ones;
  }
  if (kind == OpRun::Upstream::ones_expanded) {
    Shape single;
    for (int i = 0; i < y.rank(); ++i) single.push_back(1);
    Tensor one = empty(ctx, single, y.dtype());
    fill(ctx, one, 1.0);
    return one.expand(y.shape());
  }
  const RandomStream stream = random_stream(77, 0, site);
  std::vector<double> values(y.numel());
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  // Rounded to bf16, so that every dtype sees the same upstream gradient.
  const Tensor exact = cast(ctx, from_host(ctx, values, y.shape()), Dtype::bf16);
  const Tensor dy = cast(ctx, exact, y.dtype());
  return kind == OpRun::Upstream::random_transposed ? in_layout(ctx, dy, OpRun::Layout::transposed)
                                                    : dy;
}

Context case_context(const OpCase& c, Context ctx) {
  ctx.training = c.dropout;
  ctx.random.seed = 5;
  return ctx;
}

Context case_context(const OpCase& c, int threads) {
  return case_context(c, cpu_context(threads));
}

void require_close(const OpValues& got, const OpValues& reference, double limit, double least) {
  REQUIRE(got.names == reference.names);
  for (size_t i = 0; i < got.names.size(); ++i) {
    INFO(got.names[i]);
    CHECK(relative_difference(got.values[i], reference.values[i], least) <= limit);
  }
}

void require_same_bits(const OpValues& got, const OpValues& reference) {
  REQUIRE(got.names == reference.names);
  for (size_t i = 0; i < got.names.size(); ++i) {
    INFO(got.names[i]);
    const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
    CHECK(std::equal(got.values[i].begin(), got.values[i].end(), reference.values[i].begin(),
                     reference.values[i].end(), same));
  }
}

void check_finite_differences(const Context& ctx, const OpCase& c) {
  const std::vector<GradCheckInput> results = grad_check(ctx, c);
  for (size_t i = 0; i < results.size(); ++i) {
    INFO("finite differences of " << c.inputs[i].name);
    CHECK(results[i].relative_error <= kGradCheckTolerance);
  }
}

// The CPU's kernels sum what cancels in one order, and nothing is left. A GPU's need not.
double rounding_of(const Context& ctx, const OpCase& c) {
  return ctx.device.is_cuda() ? c.cancelling : 0.0;
}

// The oracle is the CPU's f64.
void check_against_oracle(const Context& ctx, const OpCase& c,
                          std::initializer_list<Dtype> dtypes) {
  const Context oracle_ctx = case_context(c, 1);
  for (Dtype dtype : dtypes) {
    INFO(dtype << " against the f64 oracle");
    for (const bool taped : {true, false}) {
      INFO((taped ? "on a tape" : "without a tape"));
      const OpValues oracle =
          run_case(oracle_ctx, c, {.dtype = Dtype::f64, .rounded = dtype, .taped = taped});
      const OpValues got = run_case(ctx, c, {.dtype = dtype, .rounded = dtype, .taped = taped});
      require_close(got, oracle, tolerance(dtype, c.reduction), rounding_of(ctx, c));
    }
  }
}

void check_twin(const Context& ctx, const OpCase& c) {
  for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
    INFO(dtype << " against the twin");
    const OpValues twin = run_case(ctx, c, {.dtype = dtype, .rounded = Dtype::f32, .twin = true});
    const OpValues got = run_case(ctx, c, {.dtype = dtype, .rounded = Dtype::f32});
    require_close(got, twin, twin_tolerance(dtype), rounding_of(ctx, c));
  }
}

void check_layouts(Context ctx, const OpCase& c) {
  ctx.gemm = GemmBackend::tiled;  // a library may sum in another order for another layout
  OpRun run{.dtype = Dtype::f32, .rounded = Dtype::f32};
  const OpValues expected = run_case(ctx, c, run);
  for (auto layout : {OpRun::Layout::transposed, OpRun::Layout::every_second}) {
    INFO("input layout " << static_cast<int>(layout));
    run.inputs = layout;
    require_same_bits(run_case(ctx, c, run), expected);
  }
  run.inputs = OpRun::Layout::contiguous;
  INFO("upstream gradient layouts");
  run.upstream = OpRun::Upstream::random_transposed;
  require_same_bits(run_case(ctx, c, run), expected);
  run.upstream = OpRun::Upstream::ones;
  const OpValues ones = run_case(ctx, c, run);
  run.upstream = OpRun::Upstream::ones_expanded;
  require_same_bits(run_case(ctx, c, run), ones);
}

void check_repeatable(const OpCase& c) {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const OpRun run{.dtype = dtype, .rounded = dtype};
    const OpValues expected = run_case(case_context(c, 1), c, run);
    for (int threads : {1, 2, 3, 8}) {
      INFO(dtype << " with " << threads << " threads");
      require_same_bits(run_case(case_context(c, threads), c, run), expected);
    }
  }
}

}  // namespace

OpValues run_case(const Context& ctx, const OpCase& c, const OpRun& run) {
  Tape tape(ctx);
  std::vector<Var> inputs;
  std::vector<std::vector<double>> before;
  for (const Tensor& x : case_inputs(ctx, c, run.dtype, run.rounded)) {
    const Tensor laid_out = in_layout(ctx, x, run.inputs);
    before.push_back(as_doubles(ctx, laid_out));
    const bool leaf = run.taped && is_floating(x.dtype());
    inputs.push_back(leaf ? tape.leaf(laid_out) : Var(laid_out));
  }
  const std::vector<Var> outputs = run.twin ? c.twin(ctx, inputs) : c.run(ctx, inputs);
  OpValues result;
  std::vector<Tensor> gradients;
  std::vector<std::vector<double>> gradients_before;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i].value;
    result.names.push_back(text("output ", i));
    result.values.push_back(as_doubles(ctx, y));
    gradients.push_back(is_floating(y.dtype()) ? upstream_gradient(ctx, y, i, run.upstream)
                                               : Tensor());
    gradients_before.push_back(gradients[i].defined() ? as_doubles(ctx, gradients[i])
                                                      : std::vector<double>());
  }
  if (run.taped) tape.backward(outputs, gradients);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("input " << c.inputs[i].name << " must be left as it was");
    CHECK(as_doubles(ctx, inputs[i].value) == before[i]);
    if (!inputs[i].tape) continue;
    const Tensor dx = tape.grad(inputs[i]);
    if (dx.defined()) CHECK(dx.shape() == inputs[i].shape());
    result.names.push_back("d" + c.inputs[i].name);
    result.values.push_back(dx.defined() ? as_doubles(ctx, dx)
                                         : std::vector<double>(before[i].size(), 0.0));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    INFO("the gradient of output " << i << ", which the caller holds, must be left as it was");
    CHECK(as_doubles(ctx, gradients[i]) == gradients_before[i]);
  }
  return result;
}

void check_op_cases(const std::string& family) {
  const std::vector<OpCase> cases = op_cases(family);
  REQUIRE_FALSE(cases.empty());
  for (const OpCase& c : cases) {
    INFO(c.op << ", " << c.variant);
    const Context ctx = case_context(c, 1);
    check_finite_differences(ctx, c);
    check_against_oracle(ctx, c, {Dtype::f32, Dtype::bf16});
    if (c.twin) check_twin(ctx, c);
    check_layouts(ctx, c);
    check_repeatable(c);
  }
}

void check_op_values_on_gpu(const std::string& family) {
  for (const OpCase& c : op_cases(family)) {
    INFO(c.op << ", " << c.variant);
    check_against_oracle(case_context(c, test_cuda_context()), c,
                         {Dtype::f64, Dtype::f32, Dtype::bf16});
  }
}

void check_op_consistency_on_gpu(const std::string& family) {
  for (const OpCase& c : op_cases(family)) {
    INFO(c.op << ", " << c.variant);
    const Context ctx = case_context(c, test_cuda_context());
    check_finite_differences(ctx, c);
    if (c.twin) check_twin(ctx, c);
    check_layouts(ctx, c);
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      INFO("a second run in " << dtype);
      const OpRun run{.dtype = dtype, .rounded = dtype};
      require_same_bits(run_case(ctx, c, run), run_case(ctx, c, run));
    }
  }
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b,
                           double least) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0.0, largest = least;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
      if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
      continue;
    }
    if (!std::isfinite(a[i]) || !std::isfinite(b[i]))
      return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0.0 ? difference / largest : difference;
}

}  // namespace xtrain
