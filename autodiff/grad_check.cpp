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

double numeric_derivative(const Context& ctx, const Differentiable& function,
                          std::vector<Tensor> inputs, size_t input, int64_t element,
                          const GradCheckOptions& options) {
  Values x = to_host<double>(ctx, inputs[input]);
  const Shape shape = inputs[input].shape();
  const double center = x[element], h = options.step * std::max(1.0, std::abs(center));
  const auto at = [&](double value) {
    x[element] = value;
    inputs[input] = from_host(ctx, x, shape);
    return weighted_sum(ctx, function, inputs, options.seed);
  };
  // The distance that was really stepped, after rounding.
  const double above = center + h, below = center - h;
  return (at(above) - at(below)) / (above - below);
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
    const int64_t count = inputs[i].numel();
    const int64_t checked = std::min(count, options.max_elements);
    double difference = 0.0, largest = 0.0;
    for (int64_t n = 0; n < checked; ++n) {
      const int64_t element = n * count / checked;
      const double numeric = numeric_derivative(
          ctx, function, std::vector<Tensor>(inputs.begin(), inputs.end()), i, element, options);
      const double error = std::abs(analytic[i][element] - numeric);
      difference = std::isnan(error) ? error : std::max(difference, error);
      largest = std::max(largest, std::abs(numeric));
      if (std::isnan(error)) break;
    }
    results[i] = {largest > 0.0 ? difference / largest : difference, checked};
  }
  return results;
}

}  // namespace xtrain
