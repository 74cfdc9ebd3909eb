#pragma once
// The loops of ops that map each element by itself. F names the function: F::value(x) is the
// result, F::slope(kept) its derivative from the element that was kept, both in the accumulator
// type.

#include <algorithm>

#include "core/parallel.h"

namespace xtrain {

// y[i] = value(x[i])
template <class F, class T>
void elementwise_forward(const Cpu& cpu, F f, int64_t n, const T* x, T* y) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, n, kElementBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(f.value(static_cast<A>(x[i])));
  });
}

// dx[i] = dy[i] slope(kept[i]); dx may be dy.
template <class F, class T>
void elementwise_backward(const Cpu& cpu, F f, int64_t n, const T* kept, const T* dy, T* dx) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, n, kElementBlock, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      dx[i] = static_cast<T>(static_cast<A>(dy[i]) * f.slope(static_cast<A>(kept[i])));
    }
  });
}

// The same with kept = x, and y[i] = value(x[i]), for i in [begin, end). dx and y may each be x or
// dy.
template <class F, class T>
void backward_and_value_of_range(F f, int64_t begin, int64_t end, const T* x, const T* dy, T* dx,
                                 T* y) {
  using A = Accumulator<T>;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const A in = static_cast<A>(x[i]), upstream = static_cast<A>(dy[i]);
    dx[i] = static_cast<T>(upstream * f.slope(in));
    y[i] = static_cast<T>(f.value(in));
  }
}

template <class F, class T>
void elementwise_backward_and_value(const Cpu& cpu, F f, int64_t n, const T* x, const T* dy, T* dx,
                                    T* y) {
  parallel_blocks(cpu, n, kElementBlock, [=](int64_t begin, int64_t end) {
    backward_and_value_of_range(f, begin, end, x, dy, dx, y);
  });
}

// The same for rows of `columns` elements, and row number b of `sums` is the sum of the rows of dx
// in the b-th block of kSumBlock.
inline constexpr int64_t kSumBlock = 64;
template <class F, class T>
void elementwise_backward_and_sums(const Cpu& cpu, F f, int64_t rows, int64_t columns, const T* x,
                                   const T* dy, T* dx, T* y, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, rows, kSumBlock, [=](int64_t first, int64_t last) {
    A* sum = sums + first / kSumBlock * columns;
    std::fill_n(sum, columns, A{0});
    for (int64_t row = first; row < last; ++row) {
      const int64_t begin = row * columns;
      backward_and_value_of_range(f, begin, begin + columns, x, dy, dx, y);
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) sum[i] += static_cast<A>(dx[begin + i]);
    }
  });
}

}  // namespace xtrain
