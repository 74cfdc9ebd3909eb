#include "core/parallel.h"
#include "ops/add_relu/add_relu_kernels.h"

namespace xtrain {

template <class T>
void add_relu_forward(const Cpu& cpu, int64_t n, const T* a, const T* b, T* y) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, n, kElementBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A sum = static_cast<A>(a[i]) + static_cast<A>(b[i]);
      y[i] = static_cast<T>(sum < 0 ? A{0} : sum);  // NaN stays NaN
    }
  });
}

template <class T>
void add_relu_backward(const Cpu& cpu, int64_t n, const T* y, const T* dy, T* dx) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, n, kElementBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A upstream = static_cast<A>(dy[i]);  // read in any case: a choice is no branch then
      dx[i] = static_cast<T>(static_cast<A>(y[i]) > 0 ? upstream : A{0});
    }
  });
}

#define XT_ADD_RELU(T)                                                         \
  template void add_relu_forward(const Cpu&, int64_t, const T*, const T*, T*); \
  template void add_relu_backward(const Cpu&, int64_t, const T*, const T*, T*);
XT_ADD_RELU(double)
XT_ADD_RELU(float)
XT_ADD_RELU(BFloat16)
#undef XT_ADD_RELU

}  // namespace xtrain
