#include "core/cuda/sum.h"
#include "ops/reduce/reduce_kernels.h"

namespace xtrain {

template <class T, class Out>
void sum_middle(const Cuda& cuda, int64_t outer, int64_t length, int64_t inner, const T* x,
                double factor, Out* y) {
  sum_over_middle(cuda, MiddleSizes{outer, length, inner}, x,
                  SumTarget<Out>{.y = y, .factor = factor});
}

#define XT_SUM(T, Out) \
  template void sum_middle(const Cuda&, int64_t, int64_t, int64_t, const T*, double, Out*);
XT_SUM(double, double)
XT_SUM(float, float)
XT_SUM(float, BFloat16)
XT_SUM(BFloat16, BFloat16)
XT_SUM(BFloat16, float)
#undef XT_SUM

}  // namespace xtrain
