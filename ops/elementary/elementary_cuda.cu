#include "core/cuda/elementwise.h"
#include "ops/elementary/elementary_kernels.h"

namespace xtrain {
namespace {

// Each function as its value at x and its slope from what is kept, in the accumulator type.
struct Exp {
  template <class A>
  static __device__ A value(A x) {
    return ::exp(x);
  }
  template <class A>
  static __device__ A slope(A y) {
    return y;
  }
};

struct Log {
  template <class A>
  static __device__ A value(A x) {
    return ::log(x);
  }
  template <class A>
  static __device__ A slope(A x) {
    return 1 / x;
  }
};

struct Tanh {
  template <class A>
  static __device__ A value(A x) {
    return ::tanh(x);
  }
  template <class A>
  static __device__ A slope(A y) {
    return (1 - y) * (1 + y);
  }
};

struct Sigmoid {
  template <class A>
  static __device__ A value(A x) {
    return 1 / (1 + ::exp(-x));
  }
  template <class A>
  static __device__ A slope(A y) {
    return y * (1 - y);
  }
};

struct Rsqrt {
  template <class A>
  static __device__ A value(A x) {
    return 1 / ::sqrt(x);
  }
  template <class A>
  static __device__ A slope(A y) {
    return A(-0.5) * y * y * y;
  }
};

template <class F>
void with_kind(Elementary kind, F&& f) {
  switch (kind) {
    case Elementary::exp:
      return f(Exp{});
    case Elementary::log:
      return f(Log{});
    case Elementary::tanh:
      return f(Tanh{});
    case Elementary::sigmoid:
      return f(Sigmoid{});
    case Elementary::rsqrt:
      return f(Rsqrt{});
  }
}

}  // namespace

template <class T>
void elementary_forward(const Cuda& cuda, Elementary kind, int64_t n, const T* x, T* y) {
  with_kind(kind, [&](auto f) { elementwise_forward(cuda, f, n, x, y); });
}

template <class T>
void elementary_backward(const Cuda& cuda, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx) {
  with_kind(kind, [&](auto f) { elementwise_backward(cuda, f, n, kept, dy, dx); });
}

#define XT_ELEMENTARY(T)                                                            \
  template void elementary_forward(const Cuda&, Elementary, int64_t, const T*, T*); \
  template void elementary_backward(const Cuda&, Elementary, int64_t, const T*, const T*, T*);
XT_ELEMENTARY(double)
XT_ELEMENTARY(float)
XT_ELEMENTARY(BFloat16)
#undef XT_ELEMENTARY

}  // namespace xtrain
