#include <cmath>

#include "core/cuda/exponential.h"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "ops/softmax/softmax_kernels.h"

namespace xtrain {
namespace {

// What exponentials are summed in: f32 does for results in bf16, f32 needs more.
template <class T>
using ExponentialSum = std::conditional_t<std::is_same_v<T, BFloat16>, float, double>;

template <class A>
__device__ A minus_infinity() {
  return -static_cast<A>(INFINITY);
}

// exp(x - shift) for a result of type T, x <= shift.
template <class T>
__device__ Accumulator<T> exponential(Accumulator<T> x, Accumulator<T> shift) {
  return exp(x - shift);
}

template <>
__device__ float exponential<BFloat16>(float x, float shift) {
  return approximate_exp(x - shift);
}

// To 0.72 units in the last place; 0 where the result is below e^-87. x - shift = n ln 2 + r + low,
// where low has what x - shift loses by rounding, |r| <= ln 2 / 2. The exponential of r + low is
// its Taylor polynomial of degree 7, whose remainder is below 2^-27, with 1 + r kept in two parts.
template <>
__device__ float exponential<float>(float x, float shift) {
  constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;  // their sum is ln 2
  constexpr float kLowest = -87.0f;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  const float d = x - shift, back = d - x;
  const float lost = (x - (d - back)) - (shift + back);
  const float shifted = fmaf(d, kLog2E, kRound), n = shifted - kRound;
  const float r = fmaf(n, -kLn2High, d), low = fmaf(n, -kLn2Low, lost), t = r + low;
  float p = 1.0f / 5040;
  p = fmaf(p, t, 1.0f / 720);
  p = fmaf(p, t, 1.0f / 120);
  p = fmaf(p, t, 1.0f / 24);
  p = fmaf(p, t, 1.0f / 6);
  p = fmaf(p, t, 0.5f);
  const float head = 1.0f + r, tail = (1.0f - head) + r;
  const float y = head + fmaf(p, t * t, tail + low);
  const float scaled = __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
  return d >= kLowest ? scaled : d < kLowest ? 0.0f : d;  // d may be NaN
}

// What exponents are taken relative to: the largest element. A row of only -inf has no finite one;
// relative to 0 all its exponentials are 0 rather than NaN.
template <class A>
__device__ A shift_of(A largest) {
  return largest == minus_infinity<A>() ? A{0} : largest;
}

// e / sum, or 0 where the sum is 0, rounded once.
template <class T>
struct Share {
  Accumulator<T> factor;

  __device__ explicit Share(ExponentialSum<T> sum) : factor(sum == 0 ? 0 : 1 / sum) {}
  __device__ Accumulator<T> of(Accumulator<T> e) const { return e * factor; }
};
template <>
struct Share<float> {
  float factor, rest;

  __device__ explicit Share(double sum) {
    const double exact = sum == 0 ? 0 : 1 / sum;
    factor = static_cast<float>(exact);
    rest = static_cast<float>(exact - factor);
  }
  __device__ float of(float e) const { return fmaf(e, factor, e * rest); }
};

// The largest element of a row and the sum of exp(x - shift).
template <class T>
struct RowSum {
  using A = Accumulator<T>;
  using Sum = ExponentialSum<T>;
  A largest = minus_infinity<A>();
  Sum sum = 0;

  __device__ A shift() const { return shift_of(largest); }

  // Adds the elements of a pack, when the sum is of what has been met so far.
  template <class Shape>
  __device__ void add(const Shape& shape, const Values<T>& values, typename Shape::Column column) {
    A larger = largest;
    shape.for_elements(values, column, [&](A v) { larger = Maximum()(larger, v); });
    raise_to(larger);
    shape.for_elements(values, column, [&](A v) { sum += exponential<T>(v, shift()); });
  }
  __device__ void raise_to(A larger) {
    if (larger > largest) sum *= exponential<T>(largest, larger);
    largest = larger;
  }
};

template <bool kLog, class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_rows(int64_t rows, int64_t width, const T* x_rows, T* y) {
  using A = Accumulator<T>;
  using Sum = ExponentialSum<T>;
  using Column = typename Shape::Column;
  __shared__ A largest_of_warps[kWarp];
  __shared__ Sum sum_of_warps[kWarp];
  for_rows<Shape>(rows, width, [&](const Shape& shape, int64_t row, bool inside) {
    const int64_t start = row * width;
    const Row x(shape,
                [&](int, Column column) { return values_of(shape.load(x_rows + start, column)); });
    RowSum<T> total;
    if constexpr (Shape::kHeld) {
      x.for_elements([&](A v) { total.largest = Maximum()(total.largest, v); });
    } else {
      shape.for_packs(
          [&](int pack, Column column) { total.add(shape, x.values(pack, column), column); });
    }
    total.raise_to(block_reduce(total.largest, Maximum(), minus_infinity<A>(), largest_of_warps));
    const A shift = total.shift();
    const Row e(shape, [&](int pack, Column column) {
      Values<T> values = x.values(pack, column);
#pragma unroll
      for (A& v : values.at) v = exponential<T>(v, shift);
      return values;
    });
    if constexpr (Shape::kHeld) e.for_elements([&](A v) { total.sum += v; });
    const Sum sum = block_reduce(total.sum, Add(), Sum{0}, sum_of_warps);
    const A log_sum = kLog && sum != 0 ? log(static_cast<A>(sum)) : A{0};
    const Share<T> share(sum);
    if (!inside) return;
    shape.for_packs([&](int pack, Column column) {
      Values<T> values = kLog ? x.values(pack, column) : e.values(pack, column);
#pragma unroll
      for (A& v : values.at) {
        // Two subtractions: shift + log_sum would lose the logarithm beside large logits.
        v = kLog ? (v - shift) - log_sum : share.of(v);
      }
      shape.store(y + start, column, pack_of<T>(values));
    });
  });
}

template <bool kLog, class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_backward_rows(int64_t rows, int64_t width, const T* y_rows, const T* dy_rows, T* dx) {
  using A = Accumulator<T>;
  using Column = typename Shape::Column;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(rows, width, [&](const Shape& shape, int64_t row, bool inside) {
    const int64_t start = row * width;
    const auto loaded = [&](const T* from) {
      return [&shape, from](int, Column column) { return values_of(shape.load(from, column)); };
    };
    const Row y(shape, loaded(y_rows + start)), dy(shape, loaded(dy_rows + start));
    A sum = 0;  // of dy, or of dy y
    shape.for_packs([&](int pack, Column column) {
      Values<T> terms = dy.values(pack, column);
      const Values<T> factors = y.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) terms.at[i] *= kLog ? A{1} : factors.at[i];
      shape.for_elements(terms, column, [&](A v) { sum += v; });
    });
    sum = block_reduce(sum, Add(), A{0}, scratch);
    if (!inside) return;
    shape.for_packs([&](int pack, Column column) {
      Values<T> slopes = dy.values(pack, column);
      const Values<T> outputs = y.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        const A out = outputs.at[i], slope = slopes.at[i];
        if constexpr (kLog) {
          const A log_slope = slope - exponential<T>(out, A{0}) * sum;
          slopes.at[i] = out == minus_infinity<A>() ? A{0} : log_slope;
        } else {
          slopes.at[i] = out * (slope - sum);
        }
      }
      shape.store(dx + start, column, pack_of<T>(slopes));
    });
  });
}

template <bool kLog, class T>
void launch_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* x, T* y) {
  if (width == 0) return;
  const RowBlock block = row_block<T>(width, fits_packs(width, x, y));
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(rows, block.rows), block.threads_of_block()}),
              (softmax_rows<kLog, decltype(shape), T>), rows, width, x, y);
  });
}

template <bool kLog, class T>
void launch_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* y, const T* dy,
                     T* dx) {
  if (width == 0) return;
  const RowBlock block = row_block<T>(width, fits_packs(width, y, dy, dx));
  with_row_shape<T>(block, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(rows, block.rows), block.threads_of_block()}),
              (softmax_backward_rows<kLog, decltype(shape), T>), rows, width, y, dy, dx);
  });
}

}  // namespace

template <class T>
void softmax_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* x, T* p) {
  launch_forward<false>(cuda, rows, width, x, p);
}

template <class T>
void log_softmax_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* x, T* y) {
  launch_forward<true>(cuda, rows, width, x, y);
}

template <class T>
void softmax_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* p, const T* dp,
                      T* dx) {
  launch_backward<false>(cuda, rows, width, p, dp, dx);
}

template <class T>
void log_softmax_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* y, const T* dy,
                          T* dx) {
  launch_backward<true>(cuda, rows, width, y, dy, dx);
}

#define XT_SOFTMAX(T)                                                                    \
  template void softmax_forward(const Cuda&, int64_t, int64_t, const T*, T*);            \
  template void log_softmax_forward(const Cuda&, int64_t, int64_t, const T*, T*);        \
  template void softmax_backward(const Cuda&, int64_t, int64_t, const T*, const T*, T*); \
  template void log_softmax_backward(const Cuda&, int64_t, int64_t, const T*, const T*, T*);
XT_SOFTMAX(double)
XT_SOFTMAX(float)
XT_SOFTMAX(BFloat16)
#undef XT_SOFTMAX

}  // namespace xtrain
