#pragma once
// Dropout (Srivastava et al., JMLR 15, 2014): each element is kept with probability 1 - p and then
// scaled by 1 / (1 - p), so that the expected value stays.
//
//   x [B, ...], y the same; u = uniform number of (seed, step, site, sequence, element)
//   y = x / (1 - p) where u >= p, else 0        dx = dy / (1 - p) where u >= p, else 0
//
// Row b is sequence *ctx.random.first_sequence + b (null: 0 + b), its elements are counted in
// row-major order, and numbers come from random_stream(ctx.random, site): a batch draws the same in
// halves as in one. Kept for backward: nothing, the numbers are drawn again; what ctx.random points
// to must not change in between.
// With p = 0 or outside training the result is x itself and nothing is recorded.
// Error: p outside [0, 1); x without a dimension.

#include "autodiff/tape.h"

namespace xtrain {

struct Dropout {
  double p = 0.0;     // probability of 0
  uint64_t site = 0;  // which place in the model this is; each draws its own numbers

  bool acts(const Context& ctx) const { return ctx.training && p > 0.0; }
};

// Error unless p lies in [0, 1).
void check_dropout(const Dropout& dropout);

Var dropout(const Context& ctx, const Var& x, const Dropout& dropout);

}  // namespace xtrain
