#include "ops/op_case.h"

#include <cmath>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

double draw(const CaseInput& input, const RandomStream& stream, int64_t i) {
  const double u = stream.uniform(1, i);
  switch (input.fill) {
    case Fill::normal:
      return random_normal(stream, 0, i);
    case Fill::positive:
      return 0.5 + 1.5 * u;
    case Fill::nonzero:
      return (stream.word(2, i) & 1 ? 1.0 : -1.0) * (0.25 + 1.75 * u);
    case Fill::indices:
      return static_cast<double>(random_below(stream, 0, i, input.bound));
    case Fill::given:
      return input.values.at(i);
  }
  fail("op case: unknown fill");
}

}  // namespace

std::vector<Tensor> case_inputs(const Context& ctx, const OpCase& c, Dtype dtype, Dtype rounded) {
  std::vector<Tensor> tensors;
  for (size_t n = 0; n < c.inputs.size(); ++n) {
    const CaseInput& input = c.inputs[n];
    const RandomStream stream = random_stream(20240, 0, n);
    std::vector<double> values(numel_of(input.shape));
    for (size_t i = 0; i < values.size(); ++i) values[i] = draw(input, stream, i);
    const Tensor exact = from_host(ctx, values, input.shape);
    tensors.push_back(input.is_integer() ? cast(ctx, exact, Dtype::i32)
                                         : cast(ctx, cast(ctx, exact, rounded), dtype));
  }
  return tensors;
}

std::vector<GradCheckInput> grad_check(const Context& ctx, const OpCase& c) {
  Context local = ctx;
  local.training = c.dropout;
  const std::vector<Tensor> inputs = case_inputs(local, c, Dtype::f64, Dtype::f64);
  const auto function = [&](Tape*, std::span<const Var> x) { return c.run(local, x); };
  return grad_check(local, function, inputs);
}

}  // namespace xtrain
