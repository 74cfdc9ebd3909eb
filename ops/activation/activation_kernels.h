#pragma once
// The kernels of activation.h over n contiguous elements.

#include "core/dispatch.h"
#include "ops/activation/activation.h"

namespace xtrain {

template <class T>
void activation_forward(const Cpu& cpu, Activation kind, int64_t n, const T* x, T* y);
template <class T>
void activation_forward(const Cuda& cuda, Activation kind, int64_t n, const T* x, T* y);

// Sets dx and, unless y is null, y to the bits of forward. Either may be x or dy.
template <class T>
void activation_backward(const Cpu& cpu, Activation kind, int64_t n, const T* x, const T* dy, T* dx,
                         T* y);
template <class T>
void activation_backward(const Cuda& cuda, Activation kind, int64_t n, const T* x, const T* dy,
                         T* dx, T* y);

// `rows` rows of `columns` contiguous elements.
template <class T>
struct ActivationRows {
  int64_t rows, columns;
  const T* x;
  const T* dy;
  T* dx;                 // these two as above
  T* y;                  // not null
  Accumulator<T>* sums;  // of dx as it is stored, [activation_row_blocks, columns]
};

// Into how many blocks the kernel below cuts the rows for the sums over them.
int64_t activation_row_blocks(const Cpu& cpu, int64_t rows);
int64_t activation_row_blocks(const Cuda& cuda, int64_t rows);

template <class T>
void activation_backward_and_sums(const Cpu& cpu, Activation kind, const ActivationRows<T>& p);
template <class T>
void activation_backward_and_sums(const Cuda& cuda, Activation kind, const ActivationRows<T>& p);

}  // namespace xtrain
