#include "core/cuda/elementwise.h"
#include "ops/elementary/elementary_functions.h"
#include "ops/elementary/elementary_kernels.h"

namespace xtrain {
namespace {

struct Math {
  template <class A>
  static XT_HOST_DEVICE A exp(A x) {
    return ::exp(x);
  }
  template <class A>
  static XT_HOST_DEVICE A log(A x) {
    return ::log(x);
  }
  template <class A>
  static XT_HOST_DEVICE A tanh(A x) {
    return ::tanh(x);
  }
  template <class A>
  static XT_HOST_DEVICE A sigmoid(A x) {
    return 1 / (1 + ::exp(-x));
  }
  template <class A>
  static XT_HOST_DEVICE A rsqrt(A x) {
    return 1 / ::sqrt(x);
  }
};

}  // namespace

template <class T>
void elementary_forward(const Cuda& cuda, Elementary kind, int64_t n, const T* x, T* y) {
  with_elementary<Math>(kind, [&](auto f) { elementwise_forward(cuda, f, n, x, y); });
}

template <class T>
void elementary_backward(const Cuda& cuda, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx) {
  with_elementary<Math>(kind, [&](auto f) { elementwise_backward(cuda, f, n, kept, dy, dx); });
}

#define XT_ELEMENTARY(T)                                                            \
  template void elementary_forward(const Cuda&, Elementary, int64_t, const T*, T*); \
  template void elementary_backward(const Cuda&, Elementary, int64_t, const T*, const T*, T*);
XT_ELEMENTARY(double)
XT_ELEMENTARY(float)
XT_ELEMENTARY(BFloat16)
#undef XT_ELEMENTARY

}  // namespace xtrain
