#pragma once
// Softmax over the last dimension. x [..., C]; p and y have the shape and dtype of x.
//
//   softmax:     p = exp(x - m) / sum(exp(x - m)), m = max(x)      dx = p (dp - sum(dp p))
//   log_softmax: y = x - m - log(sum(exp(x - m)))                  dx = dy - exp(y) sum(dy)
//
// Logits of any size are fine: only differences to the largest are exponentiated. An entry of -inf
// has p = 0, y = -inf and gradient 0. In a row of only -inf (a query that sees nothing) that holds
// for every entry: p is 0 throughout, not 1/C. Sums are kept in f64 for f64, else in f32.
// Kept for backward: p or y.

#include "autodiff/tape.h"

namespace xtrain {

Var softmax(const Context& ctx, const Var& x);
Var log_softmax(const Context& ctx, const Var& x);

}  // namespace xtrain
