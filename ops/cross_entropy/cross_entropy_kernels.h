#pragma once
// The kernels of cross_entropy.h over contiguous rows of logits.

#include "core/dispatch.h"

namespace xtrain {

struct TargetScan {
  int64_t counted = 0;        // targets other than the ignore index
  int64_t first_illegal = 0;  // position, or the number of targets when all are legal
};

// The only kernel that reads targets unchecked.
TargetScan scan_targets(const Cpu& cpu, int64_t n, const int32_t* targets, int64_t vocab,
                        int32_t ignore_index);

// Rows of `columns` logits, of which the first `vocab` are classes.
struct LogitRows {
  int64_t rows = 0, columns = 0, vocab = 0;
  int32_t ignore_index = 0;
  const int32_t* targets = nullptr;
};

// losses[i] = logsumexp(logits[i]) - logits[i, targets[i]], 0 for an ignored row.
// statistics[i] = {the largest logit, 1 / the sum of exp(logit - largest)}, not set for an ignored
// row. Their logsumexp in one f32 would lose the sum beside a large logit.
template <class T>
void cross_entropy_forward(const Cpu& cpu, const LogitRows& rows, const T* logits,
                           Accumulator<T>* losses, Accumulator<T>* statistics);

// dlogits = *dsum (softmax - one-hot target), 0 for ignored rows and padding. dlogits may be
// logits.
template <class T>
void cross_entropy_backward(const Cpu& cpu, const LogitRows& rows, const T* logits,
                            const Accumulator<T>* statistics, const Accumulator<T>* dsum,
                            T* dlogits);

// *sum = the sum of n values in their order, kept in f64.
template <class A>
void sum_losses(const Cpu& cpu, int64_t n, const A* losses, A* sum);

}  // namespace xtrain
