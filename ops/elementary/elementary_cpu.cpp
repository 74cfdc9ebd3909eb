#include <cmath>

#include "core/cpu/vector_math.h"
#include "ops/elementary/elementary_functions.h"
#include "ops/elementary/elementary_kernels.h"
#include "ops/elementwise_cpu.h"

namespace xtrain {
namespace {

struct Math {
  template <class A>
  static A exp(A x) {
    return vector_exp(x);
  }
  template <class A>
  static A log(A x) {
    return std::log(x);
  }
  template <class A>
  static A tanh(A x) {
    return vector_tanh(x);
  }
  template <class A>
  static A sigmoid(A x) {
    return vector_sigmoid(x);
  }
  template <class A>
  static A rsqrt(A x) {
    return A{1} / std::sqrt(x);
  }
};

}  // namespace

template <class T>
void elementary_forward(const Cpu& cpu, Elementary kind, int64_t n, const T* x, T* y) {
  with_elementary<Math>(kind, [&](auto f) { elementwise_forward(cpu, f, n, x, y); });
}

template <class T>
void elementary_backward(const Cpu& cpu, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx) {
  with_elementary<Math>(kind, [&](auto f) { elementwise_backward(cpu, f, n, kept, dy, dx); });
}

#define XT_ELEMENTARY(T)                                                           \
  template void elementary_forward(const Cpu&, Elementary, int64_t, const T*, T*); \
  template void elementary_backward(const Cpu&, Elementary, int64_t, const T*, const T*, T*);
XT_ELEMENTARY(double)
XT_ELEMENTARY(float)
XT_ELEMENTARY(BFloat16)
#undef XT_ELEMENTARY

}  // namespace xtrain
