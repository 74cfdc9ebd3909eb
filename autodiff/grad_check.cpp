#include "autodiff/grad_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

using Values = std::vector<double>;

// Cotangent `element` of output `output`: uniform in [-1, 1), away from 0 often enough to tell.
Values cotangent(uint64_t seed, uint64_t output, int64_t count) {
  const RandomStream stream = random_stream(seed, 0, output);
  Values values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = 2.0 * stream.uniform(0, i) - 1.0;
  return values;
}

std::vector<Tensor> cotangents(const Context& ctx, uint64_t seed, std::span<const Var> outputs) {
  std::vector<Tensor> result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i].value;
    result.push_back(is_floating(y.dtype())
                         ? from_host(ctx, cotangent(seed, i, y.numel()), y.shape())
                         : Tensor());
  }
  return result;
}

// The function's outputs, weighted and summed.
double weighted_sum(const Context& ctx, const Differentiable& function,
                    std::span<const Tensor> inputs, uint64_t seed) {
  const std::vector<Var> values(inputs.begin(), inputs.end());
  const std::vector<Var> outputs = function(nullptr, values);
  double sum = 0.0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    const Values y = to_host<double>(ctx, outputs[i].value);
    const Values weights = cotangent(seed, i, static_cast<int64_t>(y.size()));
    for (size_t j = 0; j < y.size(); ++j) sum += weights[j] * y[j];
  }
  return sum;
}

std::vector<Values> analytic_gradients(const Context& ctx, const Differentiable& function,
                                       std::span<const Tensor> inputs, uint64_t seed) {
  Tape tape(ctx);
  std::vector<Var> leaves;
  for (const Tensor& x : inputs) {
    leaves.push_back(is_floating(x.dtype()) ? tape.leaf(x) : Var(x));
  }
  const std::vector<Var> outputs = function(&tape, leaves);
  tape.backward(outputs, cotangents(ctx, seed, outputs));
  std::vector<Values> gradients;
  for (const Var& leaf : leaves) {
    const Tensor dx = leaf.tape ? tape.grad(leaf) : Tensor();
    gradients.push_back(dx.defined() ? to_host<double>(ctx, dx) : Values(leaf.value.numel(), 0.0));
  }
  return gradients;
}

// The slope of f at x by central differences.
double central_difference(double x, double step, const std::function<double(double)>& f) {
  const double h = step * std::max(1.0, std::abs(x));
  const double above = x + h, below = x - h;  // the distance really stepped, after rounding
  return (f(above) - f(below)) / (above - below);
}

// Compares the analytic gradient with numeric(element) at elements spread evenly over it.
GradCheckInput compare(const Values& analytic, const GradCheckOptions& options,
                       const std::function<double(int64_t)>& numeric) {
  const int64_t count = static_cast<int64_t>(analytic.size());
  const int64_t checked = std::min(count, options.max_elements);
  double difference = 0.0, largest = 0.0;
  for (int64_t n = 0; n < checked; ++n) {
    const int64_t element = n * count / checked;
    const double expected = numeric(element);
    const double error = std::abs(analytic[element] - expected);
    if (std::isnan(error)) return {error, n + 1};
    difference = std::max(difference, error);
    largest = std::max(largest, std::abs(expected));
  }
  return {largest > 0.0 ? difference / largest : difference, checked};
}

}  // namespace

std::vector<GradCheckInput> grad_check(const Context& ctx, const Differentiable& function,
                                       std::span<const Tensor> inputs,
                                       const GradCheckOptions& options) {
  const std::vector<Values> analytic = analytic_gradients(ctx, function, inputs, options.seed);
  std::vector<GradCheckInput> results(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype())) continue;
    check(inputs[i].dtype() == Dtype::f64, "grad_check: inputs must be f64; got ",
          inputs[i].dtype());
    std::vector<Tensor> varied(inputs.begin(), inputs.end());
    Values x = to_host<double>(ctx, inputs[i]);
    results[i] = compare(analytic[i], options, [&](int64_t element) {
      const double center = x[element];
      const double slope = central_difference(center, options.step, [&](double value) {
        x[element] = value;
        varied[i] = from_host(ctx, x, inputs[i].shape());
        return weighted_sum(ctx, function, varied, options.seed);
      });
      x[element] = center;
      return slope;
    });
  }
  return results;
}

std::vector<GradCheckInput> grad_check(const Context& ctx, ParameterSet& parameters,
                                       const std::function<Var(Tape* tape)>& loss,
                                       const GradCheckOptions& options) {
  parameters.clear_grads();
  Tape tape(ctx);
  tape.backward(loss(&tape));
  parameters.zero_missing_grads(ctx);
  std::vector<GradCheckInput> results;
  for (Parameter& p : parameters.list()) {
    const Values analytic = to_host<double>(ctx, p.grad);
    const Values x = to_host<double>(ctx, p.value);
    results.push_back(compare(analytic, options, [&](int64_t element) {
      const auto at = [&](double value) {
        p.value.mutable_data<double>()[element] = value;
        return to_host<double>(ctx, loss(nullptr).value)[0];
      };
      const double slope = central_difference(x[element], options.step, at);
      p.value.mutable_data<double>()[element] = x[element];
      return slope;
    }));
  }
  return results;
}

}  // namespace xtrain
