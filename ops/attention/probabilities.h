#pragma once
// The probabilities of composed attention, [B, H.., Tq, Tk] with any dimensions in between that
// multiply to the query heads.
//
// masked_softmax: 0 where the mask hides j, so a row of zeros where it hides all. Kept for
// backward: p, which is 0 wherever ds is.
//
//   p[t,j] = exp(scale s[t,j]) / sum over visible j' of exp(scale s[t,j'])
//   ds[t,j] = scale p[t,j] (dp[t,j] - sum_j' p[t,j'] dp[t,j'])
//
// probability_dropout: with the numbers of attention.h. Kept for backward: nothing. Where the
// dropout does not act the result is p itself and nothing is recorded.
//
//   y = p / (1 - dropout.p) where kept, else 0
//   dp = dy / (1 - dropout.p) where kept, else 0
//
// Sizes and mask are those that attention has checked.

#include "ops/attention/attention.h"

namespace xtrain {

Var masked_softmax(const Context& ctx, const Var& s, double scale, const AttentionMask& mask);
Var probability_dropout(const Context& ctx, const Var& p, const Dropout& dropout);

}  // namespace xtrain
