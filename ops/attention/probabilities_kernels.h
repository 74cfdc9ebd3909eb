#pragma once
// The kernels of probabilities.h over contiguous [batch, heads, queries, keys].

#include "core/dispatch.h"
#include "ops/attention/attention_dropout.h"
#include "ops/attention/visible_keys.h"

namespace xtrain {

struct ProbabilitySizes {
  int64_t batch, heads, queries, keys;

  XT_HOST_DEVICE int64_t rows() const { return batch * heads * queries; }
};

template <class T>
void masked_softmax_forward(const Cpu& cpu, const ProbabilitySizes& sizes, double scale,
                            const VisibleKeys& visible, const T* s, T* p);
template <class T>
void masked_softmax_forward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                            const VisibleKeys& visible, const T* s, T* p);

// ds may be dp.
template <class T>
void masked_softmax_backward(const Cpu& cpu, const ProbabilitySizes& sizes, double scale,
                             const T* p, const T* dp, T* ds);
template <class T>
void masked_softmax_backward(const Cuda& cuda, const ProbabilitySizes& sizes, double scale,
                             const T* p, const T* dp, T* ds);

// y = x times the dropout's factors. y may be x.
template <class T>
void probability_dropout_apply(const Cpu& cpu, const ProbabilitySizes& sizes,
                               const DropoutSource& source, const T* x, T* y);
template <class T>
void probability_dropout_apply(const Cuda& cuda, const ProbabilitySizes& sizes,
                               const DropoutSource& source, const T* x, T* y);

}  // namespace xtrain
