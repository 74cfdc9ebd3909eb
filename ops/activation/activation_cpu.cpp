#include <cmath>

#include "core/cpu/vector_math.h"
#include "ops/activation/activation_kernels.h"
#include "ops/elementwise_cpu.h"

namespace xtrain {
namespace {

// Each activation as its value and slope at one point, in the accumulator type.
struct Relu {
  template <class A>
  static A value(A x) {
    return x < 0 ? A{0} : x;  // NaN stays NaN
  }
  template <class A>
  static A slope(A x) {
    return x > 0 ? A{1} : A{0};
  }
};

struct Silu {
  template <class A>
  static A value(A x) {
    return x * vector_sigmoid(x);
  }
  template <class A>
  static A slope(A x) {
    const A s = vector_sigmoid(x);
    return s * (A{1} + x * (A{1} - s));
  }
};

struct Gelu {
  template <class A>
  static A value(A x) {
    return x * vector_normal_share(x);
  }
  template <class A>
  static A slope(A x) {
    const A density = A(0.5 * M_2_SQRTPI * M_SQRT1_2) * vector_exp(A(-0.5) * (x * x));
    return vector_normal_share(x) + x * density;
  }
};

// 1/2 (1 + tanh u) is the sigmoid of 2u, which needs one exponential.
struct GeluTanh {
  template <class A>
  static A value(A x) {
    return x * vector_sigmoid(twice_u(x));
  }
  template <class A>
  static A slope(A x) {
    const A s = vector_sigmoid(twice_u(x));
    const A twice_du = A(2 * kScale) * (A{1} + A(3 * kCubic) * x * x);
    return s + x * s * (A{1} - s) * twice_du;
  }

 private:
  static constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;

  template <class A>
  static A twice_u(A x) {
    return A(2 * kScale) * (x + A(kCubic) * x * x * x);
  }
};

template <class F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::relu:
      return f(Relu{});
    case Activation::silu:
      return f(Silu{});
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh{});
  }
}

}  // namespace

template <class T>
void activation_forward(const Cpu& cpu, Activation kind, int64_t n, const T* x, T* y) {
  with_kind(kind, [&](auto f) { elementwise_forward(cpu, f, n, x, y); });
}

template <class T>
void activation_backward(const Cpu& cpu, Activation kind, int64_t n, const T* x, const T* dy, T* dx,
                         T* y) {
  with_kind(kind, [&](auto f) {
    y ? elementwise_backward_and_value(cpu, f, n, x, dy, dx, y)
      : elementwise_backward(cpu, f, n, x, dy, dx);
  });
}

int64_t activation_row_blocks(const Cpu&, int64_t rows) {
  return (rows + kSumBlock - 1) / kSumBlock;
}

template <class T>
void activation_backward_and_sums(const Cpu& cpu, Activation kind, const ActivationRows<T>& p) {
  with_kind(kind, [&](auto f) {
    elementwise_backward_and_sums(cpu, f, p.rows, p.columns, p.x, p.dy, p.dx, p.y, p.sums);
  });
}

#define XT_ACTIVATION(T)                                                                          \
  template void activation_forward(const Cpu&, Activation, int64_t, const T*, T*);                \
  template void activation_backward(const Cpu&, Activation, int64_t, const T*, const T*, T*, T*); \
  template void activation_backward_and_sums(const Cpu&, Activation, const ActivationRows<T>&);
XT_ACTIVATION(double)
XT_ACTIVATION(float)
XT_ACTIVATION(BFloat16)
#undef XT_ACTIVATION

}  // namespace xtrain
