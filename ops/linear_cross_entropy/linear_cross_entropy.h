#pragma once
// Cross entropy of x weight^T against target classes, without the whole logits in memory.
//
//   loss = cross_entropy(x weight^T, targets)     x [N, C], weight [V, C], targets [N] i32
//   dx = dlogits weight, dweight = dlogits^T x    with dlogits of cross_entropy.h
//
// Rows are taken in chunks: forward computes a chunk's logits in the dtype of x, and from them the
// rows' losses and statistics; backward computes the logits again, turns them into dlogits in place
// and adds the chunk's share to dweight, in the order of the chunks and in the accumulator's dtype.
// targets, vocab_size (rows of weight from there on are padding), ignore_index and Loss are those
// of cross_entropy.h. Kept for backward: x, weight, targets and two statistics a row.

#include "ops/cross_entropy/cross_entropy.h"

namespace xtrain {

// chunk_rows: rows whose logits exist at a time; 0: fixed by V alone, about 4M logits but at least
// 128 rows.
Loss linear_cross_entropy(const Context& ctx, const Var& x, const Var& weight,
                          const Tensor& targets, int64_t vocab_size = 0,
                          int32_t ignore_index = kIgnoreIndex, int64_t chunk_rows = 0);

// The same from linear and cross_entropy, which hold the whole logits.
Loss linear_cross_entropy_composed(const Context& ctx, const Var& x, const Var& weight,
                                   const Tensor& targets, int64_t vocab_size = 0,
                                   int32_t ignore_index = kIgnoreIndex);

}  // namespace xtrain
