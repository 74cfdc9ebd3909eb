#pragma once
// The kernels of cross_entropy.h over contiguous rows of logits.

#include "core/check_indices_kernels.h"

namespace xtrain {

// Rows of `columns` logits, of which the first rule.limit are classes.
struct LogitRows {
  int64_t rows = 0, columns = 0;
  IndexRule rule;
  const int32_t* targets = nullptr;

  XT_HOST_DEVICE int64_t vocab() const { return rule.limit; }
  // An illegal target, which total_row_losses reports, is not followed: its row is ignored.
  XT_HOST_DEVICE bool counts(int32_t target) const {
    return target != rule.ignored && target >= 0 && target < rule.limit;
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

// *sum = the sum of n losses in a fixed order, kept in f64; *count = the number of targets that are
// not ignored. Reports a target that the rule forbids.
template <class A>
void total_row_losses(const Cpu& cpu, const IndexRule& rule, int64_t n, const int32_t* targets,
                      const A* losses, A* sum, int64_t* count);
template <class A>
void total_row_losses(const Cuda& cuda, const IndexRule& rule, int64_t n, const int32_t* targets,
                      const A* losses, A* sum, int64_t* count);

}  // namespace xtrain
