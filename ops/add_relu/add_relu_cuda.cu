#include "core/cuda/elementwise.h"
#include "ops/add_relu/add_relu_kernels.h"

namespace xtrain {
namespace {

struct AddRelu {
  template <class A>
  __device__ A operator()(A a, A b) const {
    const A sum = a + b;
    return sum < 0 ? A{0} : sum;  // NaN stays NaN
  }
};

struct WherePositive {
  template <class A>
  __device__ A operator()(A y, A dy) const {
    return y > 0 ? dy : A{0};
  }
};

}  // namespace

template <class T>
void add_relu_forward(const Cuda& cuda, int64_t n, const T* a, const T* b, T* y) {
  map(cuda, AddRelu(), n, y, a, b);
}

template <class T>
void add_relu_backward(const Cuda& cuda, int64_t n, const T* y, const T* dy, T* dx) {
  map(cuda, WherePositive(), n, dx, y, dy);
}

#define XT_ADD_RELU(T)                                                          \
  template void add_relu_forward(const Cuda&, int64_t, const T*, const T*, T*); \
  template void add_relu_backward(const Cuda&, int64_t, const T*, const T*, T*);
XT_ADD_RELU(double)
XT_ADD_RELU(float)
XT_ADD_RELU(BFloat16)
#undef XT_ADD_RELU

}  // namespace xtrain
