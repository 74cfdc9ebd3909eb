#include "core/cuda/elementwise.h"
#include "core/cuda/sigmoid.h"
#include "ops/activation/activation_kernels.h"

namespace xtrain {
namespace {

// Each activation as its value and slope at one point, for elements of T.
template <class T>
struct Relu {
  using A = Accumulator<T>;
  static __device__ A value(A x) { return x < 0 ? A{0} : x; }  // NaN stays NaN
  static __device__ A slope(A x) { return x > 0 ? A{1} : A{0}; }
};

template <class T>
struct Silu {
  using A = Accumulator<T>;
  static __device__ A value(A x) { return times_sigmoid<T>(x, x); }
  static __device__ A slope(A x) {
    const A s = sigmoid<T>(x);
    return s * (1 + x * (1 - s));
  }
};

constexpr double kSqrtHalf = 0.7071067811865476;
constexpr double kDensityAt0 = 0.3989422804014327;  // 1 / sqrt(2 pi)

template <class T>
struct Gelu {
  using A = Accumulator<T>;
  static __device__ A value(A x) {
    const A half = A(0.5) * x;
    return half * ::erf(x * A(kSqrtHalf)) + half;
  }
  static __device__ A slope(A x) {
    const A distribution = A(0.5) * (1 + ::erf(x * A(kSqrtHalf)));
    return distribution + x * A(kDensityAt0) * ::exp(A(-0.5) * x * x);
  }
};

// The standard normal's distribution by Abramowitz and Stegun, 26.2.17: right to 7.5e-8, and the
// density that it needs serves the slope too.
template <>
struct Gelu<BFloat16> {
  static __device__ float value(float x) { return x * distribution(x, density(x)); }
  static __device__ float slope(float x) {
    const float d = density(x);
    return distribution(x, d) + x * d;
  }

 private:
  static __device__ float density(float x) {
    return static_cast<float>(kDensityAt0) * approximate_exp(-0.5f * x * x);
  }
  static __device__ float distribution(float x, float density) {
    const float t = approximate_inverse(1.0f + 0.2316419f * fabsf(x));
    float p = 1.330274429f;
    p = p * t - 1.821255978f;
    p = p * t + 1.781477937f;
    p = p * t - 0.356563782f;
    p = p * t + 0.319381530f;
    const float tail = density * t * p;
    return fabsf((x > 0.0f ? 1.0f : 0.0f) - tail);
  }
};

// 1/2 (1 + tanh u) is the sigmoid of 2u, which needs one exponential.
template <class T>
struct GeluTanh {
  using A = Accumulator<T>;
  static __device__ A value(A x) { return times_sigmoid<T>(x, twice_u(x)); }
  static __device__ A slope(A x) {
    const A s = sigmoid<T>(twice_u(x));
    const A twice_du = A(kScale) * (1 + A(3 * kCubic) * x * x);
    return s + x * s * (1 - s) * twice_du;
  }

 private:
  static constexpr double kScale = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;

  // One rounding of u's size: what the factor of x loses in f32 rides with the small cubic term.
  static __device__ A twice_u(A x) {
    constexpr A kLinear = A(kScale), kRest = A(kScale - kLinear);
    return ::fma(kLinear, x, x * ::fma(A(kScale * kCubic), x * x, kRest));
  }
};

template <class T, class F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::relu:
      return f(Relu<T>{});
    case Activation::silu:
      return f(Silu<T>{});
    case Activation::gelu:
      return f(Gelu<T>{});
    case Activation::gelu_tanh:
      return f(GeluTanh<T>{});
  }
}

}  // namespace

template <class T>
void activation_forward(const Cuda& cuda, Activation kind, int64_t n, const T* x, T* y) {
  with_kind<T>(kind, [&](auto f) { elementwise_forward(cuda, f, n, x, y); });
}

template <class T>
void activation_backward(const Cuda& cuda, Activation kind, int64_t n, const T* x, const T* dy,
                         T* dx, T* y) {
  with_kind<T>(kind, [&](auto f) {
    y ? elementwise_backward_and_value(cuda, f, n, x, dy, dx, y)
      : elementwise_backward(cuda, f, n, x, dy, dx);
  });
}

int64_t activation_row_blocks(const Cuda&, int64_t rows) {
  return ceil_div(rows, kSumRows);
}

template <class T>
void activation_backward_and_sums(const Cuda& cuda, Activation kind, const ActivationRows<T>& p) {
  with_kind<T>(kind, [&](auto f) {
    elementwise_backward_and_sums(cuda, f, p.rows, p.columns, p.x, p.dy, p.dx, p.y, p.sums);
  });
}

#define XT_ACTIVATION(T)                                                                           \
  template void activation_forward(const Cuda&, Activation, int64_t, const T*, T*);                \
  template void activation_backward(const Cuda&, Activation, int64_t, const T*, const T*, T*, T*); \
  template void activation_backward_and_sums(const Cuda&, Activation, const ActivationRows<T>&);
XT_ACTIVATION(double)
XT_ACTIVATION(float)
XT_ACTIVATION(BFloat16)
#undef XT_ACTIVATION

}  // namespace xtrain
