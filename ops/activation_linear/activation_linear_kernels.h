#pragma once
// The kernel of activation_linear.h.

#include "ops/linear/linear_kernels.h"

namespace xtrain {

// p of rows that are swiglu's of gate_up [rows, 2 in], which is contiguous and begins at a multiple
// of 16 bytes.
template <class T>
void swiglu_linear_few_rows(const Cuda& cuda, const FewRowsLinear<T>& p, const T* gate_up);

}  // namespace xtrain
