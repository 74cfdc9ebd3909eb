#include <cmath>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/elementary/elementary_kernels.h"

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
  using A = Accumulator<T>;
  with_kind(kind, [&](auto f) {
    parallel_blocks(cpu, n, kElementBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(f.value(static_cast<A>(x[i])));
    });
  });
}

template <class T>
void elementary_backward(const Cpu& cpu, Elementary kind, int64_t n, const T* kept, const T* dy,
                         T* dx) {
  using A = Accumulator<T>;
  with_kind(kind, [&](auto f) {
    parallel_blocks(cpu, n, kElementBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        dx[i] = static_cast<T>(static_cast<A>(dy[i]) * f.slope(static_cast<A>(kept[i])));
      }
    });
  });
}

#define XT_ELEMENTARY(T)                                                           \
  template void elementary_forward(const Cpu&, Elementary, int64_t, const T*, T*); \
  template void elementary_backward(const Cpu&, Elementary, int64_t, const T*, const T*, T*);
XT_ELEMENTARY(double)
XT_ELEMENTARY(float)
XT_ELEMENTARY(BFloat16)
#undef XT_ELEMENTARY

}  // namespace xtrain
