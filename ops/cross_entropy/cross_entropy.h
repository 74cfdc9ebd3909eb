#pragma once
// Cross entropy of logits against target classes, summed over the targets that count.
//
//   sum = the sum over counted i of logsumexp(logits[i]) - logits[i, targets[i]]
//   dlogits[i, v] = dsum (softmax(logits[i])[v] - [v = targets[i]]), 0 where i does not count
//
// logits [N, V] floating; columns from vocab_size on (0: none) are padding, which is not read and
// has gradient 0. targets [N] i32 in [0, vocab_size), or ignore_index, which does not count; other
// values are an Error naming the value and its position. Large logits lose nothing: exponentials
// and logarithms are taken relative to the row's largest logit. Where a gradient will be wanted,
// the pass over the logits that computes the losses writes dlogits for dsum 1 as well, and backward
// multiplies them by dsum, for which nothing needs to be done when it is 1. Kept for backward:
// dlogits.

#include "autodiff/tape.h"

namespace xtrain {

inline constexpr int32_t kIgnoreIndex = -100;

struct Loss {
  Var sum;       // [1], f64 for f64 logits, else f32; 0 when nothing counts
  Tensor count;  // [1] i64: how many targets count
};

Loss cross_entropy(const Context& ctx, const Var& logits, const Tensor& targets,
                   int64_t vocab_size = 0, int32_t ignore_index = kIgnoreIndex);

}  // namespace xtrain
