#pragma once
// Proof of a gradient: backward against central differences, in f64.

#include <functional>
#include <string>
#include <vector>

#include "autodiff/tape.h"

namespace xtrain {

struct GradCheckOptions {
  double step = 1e-5;          // of the differences, times max(1, |x|)
  int64_t max_elements = 200;  // checked per input, spread evenly; larger inputs are sampled
  uint64_t seed = 1;           // of the cotangents
};

struct GradCheckInput {
  // max |analytic - numeric| / max |numeric| over the elements checked; the plain difference where
  // the numeric gradient is 0 everywhere. NaN when either is not finite.
  double relative_error = 0.0;
  int64_t elements = 0;  // checked
};

// A differentiable function: outputs of any shapes from inputs.
using Differentiable = std::function<std::vector<Var>(Tape* tape, std::span<const Var> inputs)>;

// One result per input. Outputs are weighted with fixed random cotangents, so every output counts.
// Inputs must be f64; those with an integer dtype are passed through and get an empty result. An
// input that does not reach the outputs has gradient 0.
std::vector<GradCheckInput> grad_check(const Context& ctx, const Differentiable& function,
                                       std::span<const Tensor> inputs,
                                       const GradCheckOptions& options = {});

// The same for the parameters of a model: `loss` computes a value of one element from them, with
// the tape or without. One result per parameter, in the set's order. Parameters must be f64.
std::vector<GradCheckInput> grad_check(const Context& ctx, ParameterSet& parameters,
                                       const std::function<Var(Tape* tape)>& loss,
                                       const GradCheckOptions& options = {});

}  // namespace xtrain
