#pragma once
// Normalisation over the last dimension. x [..., C], weight [C], bias [C]; weight and bias may be
// undefined, which stands for 1 and 0. All have one dtype; y has the shape and dtype of x.
//
//   layer: y = x_hat w + b, x_hat = (x - mean(x)) r, r = 1 / sqrt(mean((x - mean(x))^2) + eps)
//   rms:   y = x_hat w,     x_hat = x r,             r = 1 / sqrt(mean(x^2) + eps)
//
// Gradients, with g = dy w and means over the last dimension:
//
//   layer: dx = r (g - mean(g) - x_hat mean(g x_hat))
//   rms:   dx = r (g - x_hat mean(g x_hat))
//   dw = sum of dy x_hat, db = sum of dy, both over all rows
//
// Ba et al., arXiv 1607.06450; Zhang and Sennrich, arXiv 1910.07467. The statistics are formed in
// two passes, in f64 for f64, else in f32: a mean that is large beside the spread costs no digits.
// Kept for backward: x, weight, and r and the mean of each row.

#include "autodiff/tape.h"

namespace xtrain {

enum class NormKind : uint8_t { layer, rms };

const char* name_of(NormKind kind);  // "layer_norm", "rms_norm"

// Error when eps is not positive, a shape or dtype does not fit, or rms is given a bias.
Var norm(const Context& ctx, const Var& x, const Var& weight, const Var& bias, NormKind kind,
         double eps);

inline Var layer_norm(const Context& ctx, const Var& x, const Var& weight, const Var& bias,
                      double eps) {
  return norm(ctx, x, weight, bias, NormKind::layer, eps);
}
inline Var rms_norm(const Context& ctx, const Var& x, const Var& weight, double eps) {
  return norm(ctx, x, weight, Var(), NormKind::rms, eps);
}

struct AddNorm {
  Var sum, normed;
};

// A residual connection and the norm behind it as one node: sum = x + branch, normed = norm(sum).
// x and branch have one shape. Backward hands dsum + (what dnormed gives through the norm) to both
// inputs as one tensor, written into dsum's buffer when nobody else holds that: the residual
// gradient stays in one buffer all the way down. To a biased branch (Var::biased) it hands the
// column sums as well.
AddNorm add_norm(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                 const Var& bias, NormKind kind, double eps);

// The same function of add and norm.
AddNorm add_norm_composed(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                          const Var& bias, NormKind kind, double eps);

}  // namespace xtrain
