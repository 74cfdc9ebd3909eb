#include <cmath>

#include "core/cuda/launch.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "ops/softmax/softmax_kernels.h"

namespace xtrain {
namespace {

template <class A>
__device__ A minus_infinity() {
  return -static_cast<A>(INFINITY);
}

// exp(x) for a result of type T: the special function unit errs far less than bf16 rounds.
template <class T>
__device__ Accumulator<T> exponential(Accumulator<T> x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return __expf(x);
  } else {
    return exp(x);
  }
}

// What exponents are taken relative to: the largest element. A row of only -inf has no finite one;
// relative to 0 all its exponentials are 0 rather than NaN.
template <class A>
__device__ A shift_of(A largest) {
  return largest == minus_infinity<A>() ? A{0} : largest;
}

// The sum of exp(x - shift) over a row.
template <class A>
struct ExponentialSum {
  A shift, sum;
};

template <class Shape, class A>
__device__ ExponentialSum<A> sum_in_two_walks(const Row<Shape>& x, A* scratch) {
  using T = typename Shape::Element;
  A largest = minus_infinity<A>(), sum = 0;
  x.for_elements([&](A v) { largest = Maximum()(largest, v); });
  const A shift = shift_of(block_reduce(largest, Maximum(), minus_infinity<A>(), scratch));
  x.for_elements([&](A v) { sum += exponential<T>(v - shift); });
  return {shift, block_reduce(sum, Add(), A{0}, scratch)};
}

// Each thread keeps its sum relative to the largest element that it has met.
template <class Shape, class A>
__device__ ExponentialSum<A> sum_in_one_walk(const Shape& shape, const Row<Shape>& x, A* scratch) {
  using T = typename Shape::Element;
  A largest = minus_infinity<A>(), sum = 0;
  const auto raise_to = [&](A larger) {
    if (larger > largest) sum *= exponential<T>(largest - larger);
    largest = larger;
  };
  shape.for_packs([&](int pack, auto column) {
    const Values<T> values = x.values(pack, column);
    A larger = largest;
    shape.for_elements(values, column, [&](A v) { larger = Maximum()(larger, v); });
    raise_to(larger);
    shape.for_elements(values, column, [&](A v) { sum += exponential<T>(v - shift_of(largest)); });
  });
  raise_to(block_reduce(largest, Maximum(), minus_infinity<A>(), scratch));
  return {shift_of(largest), block_reduce(sum, Add(), A{0}, scratch)};
}

// A row that is not held is best walked over once.
template <class Shape, class A>
__device__ ExponentialSum<A> exponential_sum(const Shape& shape, const Row<Shape>& x, A* scratch) {
  if constexpr (Shape::kPacks > 0) {
    return sum_in_two_walks(x, scratch);
  } else {
    return sum_in_one_walk(shape, x, scratch);
  }
}

// body(shape, first element of the row) for the rows of the block.
template <class Shape, class Body>
__device__ void for_rows(int64_t rows, int64_t width, Body&& body) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < rows; first += stride) {
    const int64_t row = first + threadIdx.y;
    body(Shape(width, row, rows), row * width);
  }
}

template <bool kLog, class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_rows(int64_t rows, int64_t width, const T* x_rows, T* y) {
  using A = Accumulator<T>;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(rows, width, [&](const Shape& shape, int64_t start) {
    const Row<Shape> x(shape, x_rows + start);
    const auto [shift, sum] = exponential_sum(shape, x, scratch);
    const A log_sum = kLog && sum != A{0} ? log(sum) : A{0};
    const A scale = sum == A{0} ? A{0} : A{1} / sum;
    shape.for_packs([&, shift = shift](int pack, auto column) {
      Values<T> values = x.values(pack, column);
#pragma unroll
      for (A& v : values.at) {
        // Two subtractions: shift + log_sum would lose the logarithm beside large logits.
        v = kLog ? (v - shift) - log_sum : exponential<T>(v - shift) * scale;
      }
      shape.store(y + start, column, pack_of<T>(values));
    });
  });
}

template <bool kLog, class Shape, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_backward_rows(int64_t rows, int64_t width, const T* y_rows, const T* dy_rows, T* dx) {
  using A = Accumulator<T>;
  __shared__ A scratch[kWarp];
  for_rows<Shape>(rows, width, [&](const Shape& shape, int64_t start) {
    const Row<Shape> y(shape, y_rows + start), dy(shape, dy_rows + start);
    A sum = 0;  // of dy, or of dy y
    shape.for_packs([&](int pack, auto column) {
      Values<T> products = dy.values(pack, column);
      const Values<T> factors = y.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) products.at[i] *= kLog ? A{1} : factors.at[i];
      shape.for_elements(products, column, [&](A v) { sum += v; });
    });
    sum = block_reduce(sum, Add(), A{0}, scratch);
    shape.for_packs([&](int pack, auto column) {
      Values<T> slopes = dy.values(pack, column);
      const Values<T> outputs = y.values(pack, column);
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        const A out = outputs.at[i], slope = slopes.at[i];
        if constexpr (kLog) {
          slopes.at[i] = out == minus_infinity<A>() ? A{0} : slope - exponential<T>(out) * sum;
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
  const bool whole = fits_packs(width, x, y);
  const RowBlock block = row_block<T>(width, whole);
  with_row_shape<T>(block, whole, [&](auto shape) {
    XT_LAUNCH(cuda, (LaunchShape{grid_for(rows, block.rows), block.threads_of_block()}),
              (softmax_rows<kLog, decltype(shape), T>), rows, width, x, y);
  });
}

template <bool kLog, class T>
void launch_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* y, const T* dy,
                     T* dx) {
  if (width == 0) return;
  const bool whole = fits_packs(width, y, dy, dx);
  const RowBlock block = row_block<T>(width, whole);
  with_row_shape<T>(block, whole, [&](auto shape) {
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
