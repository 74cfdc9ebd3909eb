#pragma once
// Activations, element by element. y has the shape and dtype of x.
//
//   relu(x) = max(x, 0)                                    dx = dy where x > 0, else 0
//   silu(x) = x s(x), s(x) = 1 / (1 + exp(-x))             dx = dy s (1 + x (1 - s))
//   gelu(x) = x/2 (1 + erf(x / sqrt 2))                    dx = dy (Phi(x) + x phi(x))
//   gelu_tanh(x) = x/2 (1 + tanh(u)),                      dx = dy (1/2 (1 + tanh u)
//     u = sqrt(2/pi) (x + 0.044715 x^3)                            + x/2 (1 - tanh^2 u) u')
//
// GELU: Hendrycks and Gimpel, arXiv 1606.08415; Phi and phi are the standard normal's distribution
// and density. Kept for backward: x.

#include "autodiff/tape.h"

namespace xtrain {

enum class Activation : uint8_t { relu, silu, gelu, gelu_tanh };

const char* name_of(Activation kind);

Var activation(const Context& ctx, const Var& x, Activation kind);

inline Var relu(const Context& ctx, const Var& x) {
  return activation(ctx, x, Activation::relu);
}
inline Var silu(const Context& ctx, const Var& x) {
  return activation(ctx, x, Activation::silu);
}
inline Var gelu(const Context& ctx, const Var& x) {
  return activation(ctx, x, Activation::gelu);
}
inline Var gelu_tanh(const Context& ctx, const Var& x) {
  return activation(ctx, x, Activation::gelu_tanh);
}

}  // namespace xtrain
