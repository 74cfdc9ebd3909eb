#pragma once
// The functions of elementary.h, each as its value at x and its slope from what is kept, in the
// accumulator type. Math has exp, log, tanh, sigmoid and rsqrt of a device.

#include "core/dtype.h"
#include "ops/elementary/elementary.h"

namespace xtrain {

template <class Math>
struct ExpOf {
  template <class A>
  static XT_HOST_DEVICE A value(A x) {
    return Math::exp(x);
  }
  template <class A>
  static XT_HOST_DEVICE A slope(A y) {
    return y;
  }
};

template <class Math>
struct LogOf {
  template <class A>
  static XT_HOST_DEVICE A value(A x) {
    return Math::log(x);
  }
  template <class A>
  static XT_HOST_DEVICE A slope(A x) {
    return A{1} / x;
  }
};

template <class Math>
struct TanhOf {
  template <class A>
  static XT_HOST_DEVICE A value(A x) {
    return Math::tanh(x);
  }
  template <class A>
  static XT_HOST_DEVICE A slope(A y) {
    return (A{1} - y) * (A{1} + y);
  }
};

template <class Math>
struct SigmoidOf {
  template <class A>
  static XT_HOST_DEVICE A value(A x) {
    return Math::sigmoid(x);
  }
  template <class A>
  static XT_HOST_DEVICE A slope(A y) {
    return y * (A{1} - y);
  }
};

template <class Math>
struct RsqrtOf {
  template <class A>
  static XT_HOST_DEVICE A value(A x) {
    return Math::rsqrt(x);
  }
  template <class A>
  static XT_HOST_DEVICE A slope(A y) {
    return A(-0.5) * y * y * y;
  }
};

// Calls f with the function of a kind.
template <class Math, class F>
void with_elementary(Elementary kind, F&& f) {
  switch (kind) {
    case Elementary::exp:
      return f(ExpOf<Math>{});
    case Elementary::log:
      return f(LogOf<Math>{});
    case Elementary::tanh:
      return f(TanhOf<Math>{});
    case Elementary::sigmoid:
      return f(SigmoidOf<Math>{});
    case Elementary::rsqrt:
      return f(RsqrtOf<Math>{});
  }
}

}  // namespace xtrain
