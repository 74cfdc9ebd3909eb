#include "core/cpu/strided.h"
#include "ops/arithmetic/arithmetic_kernels.h"

namespace xtrain {
namespace {

// y[i] = f(a[i sa], b[i sb]), computed in the accumulator type. The strides of 0 and 1 that nearly
// all rows have get loops of their own, which become vector code.
template <class T, class Out, class F>
void binary_row(int64_t n, const T* a, int64_t sa, const T* b, int64_t sb, Out* y, F f) {
  using A = Accumulator<T>;
  if (sa == 1 && sb == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<Out>(f(static_cast<A>(a[i]), static_cast<A>(b[i])));
    }
  } else if (sa == 1 && sb == 0) {
    const A repeated = static_cast<A>(*b);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(static_cast<A>(a[i]), repeated));
  } else if (sa == 0 && sb == 1) {
    const A repeated = static_cast<A>(*a);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(repeated, static_cast<A>(b[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<Out>(f(static_cast<A>(a[i * sa]), static_cast<A>(b[i * sb])));
    }
  }
}

template <class F>
void with_kind(Arithmetic kind, F&& f) {
  switch (kind) {
    case Arithmetic::add:
      return f([](auto a, auto b) { return a + b; });
    case Arithmetic::sub:
      return f([](auto a, auto b) { return a - b; });
    case Arithmetic::mul:
      return f([](auto a, auto b) { return a * b; });
    case Arithmetic::div:
      return f([](auto a, auto b) { return a / b; });
  }
}

}  // namespace

template <class T, class Out>
void arithmetic_forward(const Cpu& cpu, Arithmetic kind, const Shape& shape, StridedInput<T> a,
                        StridedInput<T> b, Out* y) {
  const StridedLoop<3> loop(shape, {a.strides, b.strides, contiguous_strides(shape)});
  with_kind(kind, [&](auto f) {
    parallel_strided(cpu, loop, [&](const auto& at, int64_t length) {
      binary_row(length, a.data + at[0], loop.row_stride(0), b.data + at[1], loop.row_stride(1),
                 y + at[2], f);
    });
  });
}

template <class T, class Out>
void div_backward_divisor(const Cpu& cpu, const Shape& shape, StridedInput<T> dy, StridedInput<T> a,
                          StridedInput<T> b, Out* db) {
  using A = Accumulator<T>;
  const StridedLoop<4> loop(shape, {dy.strides, a.strides, b.strides, contiguous_strides(shape)});
  const int64_t sdy = loop.row_stride(0), sa = loop.row_stride(1), sb = loop.row_stride(2);
  parallel_strided(cpu, loop, [&](const auto& at, int64_t length) {
    const T *dyi = dy.data + at[0], *ai = a.data + at[1], *bi = b.data + at[2];
    Out* dbi = db + at[3];
    for (int64_t i = 0; i < length; ++i) {
      const A divisor = static_cast<A>(bi[i * sb]);
      dbi[i] = static_cast<Out>(-(static_cast<A>(dyi[i * sdy]) / divisor) *
                                (static_cast<A>(ai[i * sa]) / divisor));
    }
  });
}

template <class T>
void scale_forward(const Cpu& cpu, int64_t n, const T* x, double factor, T* y) {
  using A = Accumulator<T>;
  const A f = static_cast<A>(factor);
  parallel_blocks(cpu, n, kElementBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(static_cast<A>(x[i]) * f);
  });
}

#define XT_ARITHMETIC(T, Out)                                                                    \
  template void arithmetic_forward(const Cpu&, Arithmetic, const Shape&, StridedInput<T>,        \
                                   StridedInput<T>, Out*);                                       \
  template void div_backward_divisor(const Cpu&, const Shape&, StridedInput<T>, StridedInput<T>, \
                                     StridedInput<T>, Out*);
XT_ARITHMETIC(double, double)
XT_ARITHMETIC(float, float)
XT_ARITHMETIC(BFloat16, BFloat16)
XT_ARITHMETIC(BFloat16, float)
#undef XT_ARITHMETIC

template void scale_forward(const Cpu&, int64_t, const double*, double, double*);
template void scale_forward(const Cpu&, int64_t, const float*, double, float*);
template void scale_forward(const Cpu&, int64_t, const BFloat16*, double, BFloat16*);

}  // namespace xtrain
