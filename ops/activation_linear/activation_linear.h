#pragma once
// An activation and the projection of its result as one node: the second half of an MLP.
//
//   y = f(x) weight^T + bias      f an activation (activation.h) or swiglu (swiglu.h)
//
// Gradients are those of f and linear, to the bit. The projection's weight gradient is the last
// thing that reads f(x), and is formed behind the backward of f, which reads x anyway and writes
// f(x) again, over its gradient. So f(x) is not kept. Kept for backward: x, over which its gradient
// is written when nobody else holds it, and weight. The gradient of a biased x (Var::biased) comes
// with its column sums where f is an activation.

#include "autodiff/tape.h"
#include "ops/activation/activation.h"

namespace xtrain {

// x [..., F], weight [out, F], bias [out] or undefined, y [..., out]. Errors are those of linear.
Var activation_linear(const Context& ctx, const Var& x, Activation kind, const Var& weight,
                      const Var& bias);

// The same where f(x) is known: contiguous, of x before it was rounded perhaps. Backward makes it
// again from x itself.
Var activated_linear(const Context& ctx, const Var& x, const Tensor& activated, Activation kind,
                     const Var& weight, const Var& bias);

// gate_up [..., 2F], the rest as above. Errors are those of swiglu and linear.
Var swiglu_linear(const Context& ctx, const Var& gate_up, const Var& weight, const Var& bias);

// The same from the composed swiglu and linear, or activation and linear.
Var activation_linear_composed(const Context& ctx, const Var& x, Activation kind, const Var& weight,
                               const Var& bias);
Var swiglu_linear_composed(const Context& ctx, const Var& gate_up, const Var& weight,
                           const Var& bias);

}  // namespace xtrain
