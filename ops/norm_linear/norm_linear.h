#pragma once
// A norm (norm.h) and the projection of its result (linear.h) as one node.
//
//   sum = x + branch      normed = norm(sum)      y = normed weight^T + bias
//
// Gradients are those of add_norm and linear, to the bit. The projection's weight gradient is the
// last thing that reads `normed`, and is formed behind the norm's backward, which has what it takes
// to write `normed` again, over d(normed). So `normed` is not kept. Kept for backward: sum, the
// weights, and r and the mean of each row.

#include "autodiff/tape.h"
#include "ops/norm/norm.h"

namespace xtrain {

struct NormLinearParameters {
  Var norm_weight, norm_bias;  // each may be undefined
  Var weight, bias;            // of the projection; bias may be undefined
  bool gelu_follows = false;   // activation_linear with gelu_tanh will ask for gelu of y
};

struct NormLinear {
  Var sum, y;
  Tensor gelu;  // gelu_tanh of y, where it follows and the product gives it in passing
};

// sum [..., C], y [..., out]. Without a branch, sum is x. Errors are those of norm and linear.
NormLinear norm_linear(const Context& ctx, const Var& x, const Var& branch,
                       const NormLinearParameters& parameters, NormKind kind, double eps);

// The same function of add, norm and linear.
NormLinear norm_linear_composed(const Context& ctx, const Var& x, const Var& branch,
                                const NormLinearParameters& parameters, NormKind kind, double eps);

}  // namespace xtrain
