#pragma once
// The kernels of norm.h over rows of `width` contiguous elements, one row behind the other.

#include "core/dispatch.h"
#include "ops/norm/norm.h"

namespace xtrain {

template <class T>
struct NormForward {
  NormKind kind;
  int64_t rows, width;
  double eps;
  const T* x;
  const T* branch;  // null: there is nothing to add and `sum` is not written
  T* sum;           // x + branch, which is then normalised
  const T* weight;  // null: 1
  const T* bias;    // null: 0
  T* y;
  Accumulator<T>* mean;  // [rows]; null for rms
  Accumulator<T>* rstd;  // [rows]
};

template <class T>
void norm_forward(const Cpu& cpu, const NormForward<T>& p);
template <class T>
void norm_forward(const Cuda& cuda, const NormForward<T>& p);

template <class T>
struct NormBackward {
  NormKind kind;
  int64_t rows, width;
  const T* x;  // what was normalised
  const T* weight;
  const T* bias;  // read for y only
  const Accumulator<T>* mean;
  const Accumulator<T>* rstd;
  const T* dy;
  const T* dsum;  // added to dx; null: nothing is
  T* dx;          // may be dy or dsum; null: not wanted
  T* y;           // set to the bits of forward; may be dy where dx is not; null: not wanted
  // The sums over each block of rows, [norm_row_blocks, width]; null: not wanted.
  Accumulator<T>* dweight;
  Accumulator<T>* dbias;
  Accumulator<T>* dx_sums;  // of dx as it is stored
};

// Into how many blocks norm_backward<T> cuts the rows for sums over them.
template <class T>
int64_t norm_row_blocks(const Cpu& cpu, int64_t rows, int64_t width);
template <class T>
int64_t norm_row_blocks(const Cuda& cuda, int64_t rows, int64_t width);

template <class T>
void norm_backward(const Cpu& cpu, const NormBackward<T>& p);
template <class T>
void norm_backward(const Cuda& cuda, const NormBackward<T>& p);

// target[i * stride] = (or +=) the sum over the rows of x [rows, width]; target null: nothing.
template <class A>
struct RowSums {
  const A* x = nullptr;
  bool accumulate = false;
  A* target = nullptr;
  int64_t stride = 1;
};

// Two of them, of equal sizes, each added in an order that depends on these alone.
template <class A>
void sum_rows(const Cpu& cpu, int64_t rows, int64_t width, const RowSums<A>& first,
              const RowSums<A>& second);
template <class A>
void sum_rows(const Cuda& cuda, int64_t rows, int64_t width, const RowSums<A>& first,
              const RowSums<A>& second);

}  // namespace xtrain
