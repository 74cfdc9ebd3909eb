#include <cmath>

#include "core/cpu/vector_math.h"
#include "ops/elementary/elementary_kernels.h"
#include "ops/elementwise_cpu.h"

namespace xtrain {
namespace {

// Each function as its value at x and its slope from what is kept, in the accumulator type.
struct Exp {
  template <class A>
  static A value(A x) {
    return vector_exp(x);
  }
  template <class A>
  static A slope(A y) {
    return y;
  }
};

struct Log {
  template <class A>
  static A value(A x) {
    return std::log(x);
  }
  template <class A>
  static A slope(A x) {
    return A{1} / x;
  }
};

struct Tanh {
  template <class A>
  static A value(A x) {
    return vector_tanh(x);
  }
  template <class A>
  static A slope(A y) {
    return (A{1} - y) * (A{1} + y);
  }
};

struct Sigmoid {
  template <class A>
  static A value(A x) {
    return vector_sigmoid(x);
  }
  template <class A>
  static A slope(A y) {
    return y * (A{1} - y);
  }
};

struct Rsqrt {
  template <class A>
  static A value(A x) {
    return A{1} / std::sqrt(x);
  }
  template <class A>
  static A slope(A y) {
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
void elementary_forward(const Cpu& cpu, Elementary kind, int64_t n, const T* x, T* y) {
  with_kind(kind, [&](auto f) { elementwise_forward(cpu, f, n, x, y); });
}

template <class T>
void elementary_backward(const Cpu& cpu, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx) {
  with_kind(kind, [&](auto f) { elementwise_backward(cpu, f, n, kept, dy, dx); });
}

#define XT_ELEMENTARY(T)                                                           \
  template void elementary_forward(const Cpu&, Elementary, int64_t, const T*, T*); \
  template void elementary_backward(const Cpu&, Elementary, int64_t, const T*, const T*, T*);
XT_ELEMENTARY(double)
XT_ELEMENTARY(float)
XT_ELEMENTARY(BFloat16)
#undef XT_ELEMENTARY

}  // namespace xtrain
