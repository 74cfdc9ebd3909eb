#include <cmath>
#include <limits>

#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/softmax/softmax_kernels.h"

namespace xtrain {
namespace {

template <class A>
constexpr A kMinusInfinity = -std::numeric_limits<A>::infinity();

// What exponents are taken relative to: the largest element. A row of only -inf has no finite one;
// relative to 0 all its exponentials are 0 rather than NaN.
template <class T>
Accumulator<T> row_shift(const T* x, int64_t width) {
  using A = Accumulator<T>;
  A largest = kMinusInfinity<A>;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < width; ++i) {
    const A value = static_cast<A>(x[i]);
    largest = value > largest ? value : largest;
  }
  return largest == kMinusInfinity<A> ? A{0} : largest;
}

template <class T>
void softmax_row(const T* x, int64_t width, T* p) {
  using A = Accumulator<T>;
  // Where p holds exponentials unrounded, each is formed once.
  constexpr bool kStored = std::is_same_v<T, A>;
  const A shift = row_shift(x, width);
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) {
    const A e = vector_exp(static_cast<A>(x[i]) - shift);
    if constexpr (kStored) p[i] = e;
    sum += e;
  }
  const A scale = sum == A{0} ? A{0} : A{1} / sum;
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A e = kStored ? static_cast<A>(p[i]) : vector_exp(static_cast<A>(x[i]) - shift);
    p[i] = static_cast<T>(e * scale);
  }
}

template <class T>
void log_softmax_row(const T* x, int64_t width, T* y) {
  using A = Accumulator<T>;
  const A shift = row_shift(x, width);
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += vector_exp(static_cast<A>(x[i]) - shift);
  const A log_sum = sum == A{0} ? A{0} : std::log(sum);
  // Two subtractions: shift + log_sum would round the logarithm away where the logits are large.
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    y[i] = static_cast<T>((static_cast<A>(x[i]) - shift) - log_sum);
  }
}

template <class T>
void softmax_backward_row(const T* p, const T* dp, int64_t width, T* dx) {
  using A = Accumulator<T>;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += static_cast<A>(dp[i]) * static_cast<A>(p[i]);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    dx[i] = static_cast<T>(static_cast<A>(p[i]) * (static_cast<A>(dp[i]) - sum));
  }
}

template <class T>
void log_softmax_backward_row(const T* y, const T* dy, int64_t width, T* dx) {
  using A = Accumulator<T>;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += static_cast<A>(dy[i]);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const A log_p = static_cast<A>(y[i]);
    const A slope = static_cast<A>(dy[i]) - vector_exp(log_p) * sum;
    dx[i] = static_cast<T>(log_p == kMinusInfinity<A> ? A{0} : slope);
  }
}

template <class Body>
void for_rows(const Cpu& cpu, int64_t rows, int64_t width, Body&& body) {
  const int64_t block = std::max<int64_t>(1, kElementBlock / std::max<int64_t>(1, width));
  parallel_blocks(cpu, rows, block, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row * width);
  });
}

}  // namespace

template <class T>
void softmax_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* x, T* p) {
  for_rows(cpu, rows, width, [&](int64_t at) { softmax_row(x + at, width, p + at); });
}

template <class T>
void log_softmax_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* x, T* y) {
  for_rows(cpu, rows, width, [&](int64_t at) { log_softmax_row(x + at, width, y + at); });
}

template <class T>
void softmax_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* p, const T* dp, T* dx) {
  for_rows(cpu, rows, width,
           [&](int64_t at) { softmax_backward_row(p + at, dp + at, width, dx + at); });
}

template <class T>
void log_softmax_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* y, const T* dy,
                          T* dx) {
  for_rows(cpu, rows, width,
           [&](int64_t at) { log_softmax_backward_row(y + at, dy + at, width, dx + at); });
}

#define XT_SOFTMAX(T)                                                                   \
  template void softmax_forward(const Cpu&, int64_t, int64_t, const T*, T*);            \
  template void log_softmax_forward(const Cpu&, int64_t, int64_t, const T*, T*);        \
  template void softmax_backward(const Cpu&, int64_t, int64_t, const T*, const T*, T*); \
  template void log_softmax_backward(const Cpu&, int64_t, int64_t, const T*, const T*, T*);
XT_SOFTMAX(double)
XT_SOFTMAX(float)
XT_SOFTMAX(BFloat16)
#undef XT_SOFTMAX

}  // namespace xtrain
