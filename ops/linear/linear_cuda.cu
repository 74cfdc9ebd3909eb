#include "core/cuda/sum.h"
#include "ops/linear/few_rows_linear_cuda.h"

namespace xtrain {
namespace {

// Rows that are there already.
template <class T>
struct GivenRows {
  static constexpr int kVectors = 0;
  const T* x;

  __device__ void fetch(int64_t, T*) const {}
  template <int kRows>
  __device__ void make(int m, int64_t width, T* rows) const {
    for_staged_packs<T>(m * width, [&](int64_t k) { stage_pack(rows + k, load_pack_l2(x + k)); });
  }
};

}  // namespace

template <class T>
void few_rows_linear(const Cuda& cuda, const FewRowsLinear<T>& p, const T* x) {
  launch_linear_few_rows(cuda, p, GivenRows<T>{x});
}

template <class T>
void column_sums(const Cuda& cuda, int64_t rows, int64_t columns, const T* x, bool accumulate,
                 Accumulator<T>* sums) {
  sum_over_middle(cuda, MiddleSizes{1, rows, columns}, x,
                  SumTarget<Accumulator<T>>{.y = sums, .accumulate = accumulate});
}

#define XT_LINEAR(T)                                                                         \
  template void column_sums(const Cuda&, int64_t, int64_t, const T*, bool, Accumulator<T>*); \
  template void few_rows_linear(const Cuda&, const FewRowsLinear<T>&, const T*);
XT_LINEAR(double)
XT_LINEAR(float)
XT_LINEAR(BFloat16)
#undef XT_LINEAR

}  // namespace xtrain
