#pragma once
// The kernels of cross_entropy.h over contiguous rows of logits.

#include "core/dispatch.h"

namespace xtrain {

// *count = the number of targets other than the ignore index.
void count_targets(const Cpu& cpu, int64_t n, const int32_t* targets, int32_t ignore_index,
                   int64_t* count);
void count_targets(const Cuda& cuda, int64_t n, const int32_t* targets, int32_t ignore_index,
                   int64_t* count);

// Rows of `columns` logits, of which the first `vocab` are classes.
struct LogitRows {
  int64_t rows = 0, columns = 0, vocab = 0;
  int32_t ignore_index = 0;
  const int32_t* targets = nullptr;

  // check_indices has reported a target outside [0, vocab); it is ignored.
  XT_HOST_DEVICE bool counts(int32_t target) const {
    return target != ignore_index && target >= 0 && target < vocab;
  }
};

// losses[i] = logsumexp(logits[i]) - logits[i, targets[i]], 0 for an ignored row.
template <class T>
void cross_entropy_losses(const Cpu& cpu, const LogitRows& rows, const T* logits,
                          Accumulator<T>* losses);
template <class T>
void cross_entropy_losses(const Cuda& cuda, const LogitRows& rows, const T* logits,
                          Accumulator<T>* losses);

// The same losses, and dlogits = *dsum (softmax - one-hot target), 0 for ignored rows and padding.
// A null dsum stands for 1. dlogits may be logits.
template <class T>
void cross_entropy_gradients(const Cpu& cpu, const LogitRows& rows, const T* logits,
                             const Accumulator<T>* dsum, Accumulator<T>* losses, T* dlogits);
template <class T>
void cross_entropy_gradients(const Cuda& cuda, const LogitRows& rows, const T* logits,
                             const Accumulator<T>* dsum, Accumulator<T>* losses, T* dlogits);

// x *= *factor over n elements; touches none when the factor is 1.
template <class T>
void scale_in_place(const Cpu& cpu, int64_t n, const Accumulator<T>* factor, T* x);
template <class T>
void scale_in_place(const Cuda& cuda, int64_t n, const Accumulator<T>* factor, T* x);

// *sum = the sum of n values in a fixed order, kept in f64.
template <class A>
void sum_losses(const Cpu& cpu, int64_t n, const A* losses, A* sum);
template <class A>
void sum_losses(const Cuda& cuda, int64_t n, const A* losses, A* sum);

}  // namespace xtrain
