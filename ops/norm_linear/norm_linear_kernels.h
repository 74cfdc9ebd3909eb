#pragma once
// The kernel of norm_linear.h.

#include "ops/linear/linear_kernels.h"
#include "ops/norm/norm_kernels.h"

namespace xtrain {

// p of rows that are the norm's; y and the statistics of the norm are not written. All tensors are
// contiguous and begin at multiples of 16 bytes.
template <class T>
void norm_linear_few_rows(const Cuda& cuda, const FewRowsLinear<T>& p, const NormForward<T>& norm);

}  // namespace xtrain
