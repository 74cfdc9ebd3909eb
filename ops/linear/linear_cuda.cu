#include "core/cuda/sum.h"
#include "ops/linear/linear_kernels.h"

namespace xtrain {

template <class T>
void column_sums(const Cuda& cuda, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums) {
  sum_over_middle(cuda, MiddleSizes{1, rows, columns}, x,
                  SumTarget<Accumulator<T>>{.y = sums, .accumulate = accumulate});
}

#define XT_LINEAR(T) \
  template void column_sums(const Cuda&, int64_t, int64_t, const T*, bool, Accumulator<T>*);
XT_LINEAR(double)
XT_LINEAR(float)
XT_LINEAR(BFloat16)
#undef XT_LINEAR

}  // namespace xtrain
