#pragma once
// Cross entropy of x weight^T against target classes, without the whole logits in memory.
//
//   loss = cross_entropy(x weight^T, targets)     x [N, C], weight [V, C], targets [N] i32
//   dx = dlogits weight, dweight = dlogits^T x    with dlogits of cross_entropy.h
//
// Rows are taken in chunks, whose logits are computed in the dtype of x. When one chunk holds all
// rows, forward turns its logits into dlogits in place (see cross_entropy.h), which are kept, and
// backward needs two products only. Otherwise forward computes the losses of one chunk after the
// other; backward computes the logits again and adds each chunk's share to dweight, in the order of
// the chunks and in the accumulator's dtype. targets, vocab_size (rows of weight from there on are
// padding), ignore_index and Loss are those of cross_entropy.h. Kept for backward: x, weight,
// targets and, of a single chunk, dlogits. On a GPU the logits have a multiple of 8 columns (of 64
// from 4096 on): products want round sizes. The weight's rows for these are zeros that lie behind
// it, or else those of a copy.

#include "ops/cross_entropy/cross_entropy.h"

namespace xtrain {

// How many rows of zeros the products of a weight with `rows` rows take behind it.
int64_t head_zero_rows(const Context& ctx, int64_t rows);

// zero_rows: so many rows of zeros lie behind weight in its storage, and behind its gradient, where
// products may write zeros (Parameter::zero_rows); 0: none do, and a copy has them where the device
// wants any. chunk_rows: rows whose logits exist at a time; 0: fixed by V, dtype and kind of
// device, about 4M logits but at least 128 rows on the CPU, 16 GiB but at least 8192 rows on a GPU.
Loss linear_cross_entropy(const Context& ctx, const Var& x, const Var& weight,
                          const Tensor& targets, int64_t vocab_size = 0,
                          int32_t ignore_index = kIgnoreIndex, int64_t chunk_rows = 0,
                          int64_t zero_rows = 0);

// The loss of each row by itself, [N] in the accumulator's dtype, 0 where it does not count.
// Arguments as above; values only.
Tensor linear_cross_entropy_rows(const Context& ctx, const Tensor& x, const Tensor& weight,
                                 const Tensor& targets, int64_t vocab_size = 0,
                                 int32_t ignore_index = kIgnoreIndex, int64_t chunk_rows = 0,
                                 int64_t zero_rows = 0);

// linear_cross_entropy from linear and cross_entropy, which hold the whole logits.
Loss linear_cross_entropy_composed(const Context& ctx, const Var& x, const Var& weight,
                                   const Tensor& targets, int64_t vocab_size = 0,
                                   int32_t ignore_index = kIgnoreIndex);

}  // namespace xtrain
