#pragma once
// The contract between gemm and its backends.

#include "core/dispatch.h"
#include "core/shape.h"

namespace xtrain {

// A matrix whose rows (transposed: columns) are contiguous and `ld` elements apart.
struct GemmOperand {
  int64_t ld = 0;
  bool transposed = false;
};

// c[i] = alpha * a[i] b[i] + beta * c[i] for every batch index i; c lies by rows.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1.0, beta = 0.0;
  GemmOperand a, b;
  int64_t ldc = 0;
  Shape batch;  // leading sizes, possibly none
  Strides batch_stride_a, batch_stride_b, batch_stride_c;

  int64_t batches() const { return numel_of(batch); }
  // Elements from the first matrix to matrix `index` in row-major batch order.
  int64_t batch_offset(const Strides& strides, int64_t index) const {
    int64_t offset = 0;
    for (int i = batch.rank() - 1; i >= 0; --i) {
      offset += index % batch[i] * strides[i];
      index /= batch[i];
    }
    return offset;
  }
};

// Computes with the context's backend; Error when the device does not have it.
template <class T, class Out>
void gemm_kernel(const Cpu& cpu, const GemmProblem& problem, const T* a, const T* b, Out* c);
template <class T, class Out>
void gemm_kernel(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b, Out* c);

// c = a b + bias in one go, the bias [n] added to every row, of a problem without batch dimensions;
// alpha and beta are not looked at. Unless gelu is null, which lies as c, it becomes gelu_tanh of
// that. False, and nothing is done, where the backend has no such way.
template <class T>
bool gemm_bias_kernel(const Cpu&, const GemmProblem&, const T*, const T*, const T*, T*, T*) {
  return false;
}
template <class T>
bool gemm_bias_kernel(const Cuda& cuda, const GemmProblem& problem, const T* a, const T* b,
                      const T* bias, T* c, T* gelu);

}  // namespace xtrain
