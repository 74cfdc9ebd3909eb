#include "core/cuda/sigmoid.h"
#include "ops/activation_linear/activation_linear_kernels.h"
#include "ops/linear/few_rows_linear_cuda.h"

namespace xtrain {
namespace {

template <class T>
struct GatedRows {
  static constexpr int kVectors = 0;
  const T* gate_up;

  __device__ void fetch(int64_t, T*) const {}
  template <int kRows>
  __device__ void make(int m, int64_t width, T* rows) const {
    for (int r = 0; r < m; ++r) {
      const T* const gates = gate_up + 2 * r * width;
      for_staged_packs<T>(width, [&](int64_t k) {
        const Values<T> gate = values_of(load_pack_l2(gates + k));
        const Values<T> up = values_of(load_pack_l2(gates + width + k));
        Values<T> y;
#pragma unroll
        for (int i = 0; i < kPackSize<T>; ++i) {
          y.at[i] = times_sigmoid<T>(gate.at[i], gate.at[i]) * up.at[i];
        }
        stage_pack(rows + r * width + k, pack_of<T>(y));
      });
    }
  }
};

}  // namespace

template <class T>
void swiglu_linear_few_rows(const Cuda& cuda, const FewRowsLinear<T>& p, const T* gate_up) {
  launch_linear_few_rows(cuda, p, GatedRows<T>{gate_up});
}

#define XT_SWIGLU_LINEAR(T) \
  template void swiglu_linear_few_rows(const Cuda&, const FewRowsLinear<T>&, const T*);
XT_SWIGLU_LINEAR(double)
XT_SWIGLU_LINEAR(float)
XT_SWIGLU_LINEAR(BFloat16)
#undef XT_SWIGLU_LINEAR

}  // namespace xtrain
