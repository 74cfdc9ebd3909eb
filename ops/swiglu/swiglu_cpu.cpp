#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/swiglu/swiglu_kernels.h"

namespace xtrain {
namespace {

// Rows that make a piece of work of about the usual size.
int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, kElementBlock / std::max<int64_t>(1, width));
}

template <bool kRebuilds, class T>
void backward_row(int64_t width, const T* gate_up, const T* dy, T* dgate_up, T* y) {
  using A = Accumulator<T>;
  const T *gate = gate_up, *up = gate + width;
  T *dgate = dgate_up, *dup = dgate + width;
#pragma omp simd
  for (int64_t j = 0; j < width; ++j) {
    const A x = static_cast<A>(gate[j]), u = static_cast<A>(up[j]), d = static_cast<A>(dy[j]);
    const A s = vector_sigmoid(x);
    dgate[j] = static_cast<T>(d * u * s * (A{1} + x * (A{1} - s)));
    dup[j] = static_cast<T>(d * x * s);
    if (kRebuilds) y[j] = static_cast<T>(x * s * u);
  }
}

}  // namespace

template <class T>
void swiglu_forward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, T* y) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *gate = gate_up + i * 2 * width, *up = gate + width;
      T* out = y + i * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        const A x = static_cast<A>(gate[j]);
        out[j] = static_cast<T>(x * vector_sigmoid(x) * static_cast<A>(up[j]));
      }
    }
  });
}

template <class T>
void swiglu_backward(const Cpu& cpu, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up, T* y) {
  parallel_blocks(cpu, rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *gates = gate_up + i * 2 * width, *upstream = dy + i * width;
      T* dgates = dgate_up + i * 2 * width;
      y ? backward_row<true>(width, gates, upstream, dgates, y + i * width)
        : backward_row<false>(width, gates, upstream, dgates, y);
    }
  });
}

#define XT_SWIGLU(T)                                                        \
  template void swiglu_forward(const Cpu&, int64_t, int64_t, const T*, T*); \
  template void swiglu_backward(const Cpu&, int64_t, int64_t, const T*, const T*, T*, T*);
XT_SWIGLU(double)
XT_SWIGLU(float)
XT_SWIGLU(BFloat16)
#undef XT_SWIGLU

}  // namespace xtrain
