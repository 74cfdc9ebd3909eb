#include "core/cpu/vector_math.h"
#include "core/parallel.h"
#include "ops/swiglu/swiglu_kernels.h"

namespace xtrain {
namespace {

// Rows that make a piece of work of about the usual size.
int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, kElementBlock / std::max<int64_t>(1, width));
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
                     T* dgate_up) {
  using A = Accumulator<T>;
  parallel_blocks(cpu, rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *gate = gate_up + i * 2 * width, *up = gate + width, *upstream = dy + i * width;
      T *dgate = dgate_up + i * 2 * width, *dup = dgate + width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        const A x = static_cast<A>(gate[j]), d = static_cast<A>(upstream[j]);
        const A s = vector_sigmoid(x);
        dgate[j] = static_cast<T>(d * static_cast<A>(up[j]) * s * (A{1} + x * (A{1} - s)));
        dup[j] = static_cast<T>(d * x * s);
      }
    }
  });
}

#define XT_SWIGLU(T)                                                        \
  template void swiglu_forward(const Cpu&, int64_t, int64_t, const T*, T*); \
  template void swiglu_backward(const Cpu&, int64_t, int64_t, const T*, const T*, T*);
XT_SWIGLU(double)
XT_SWIGLU(float)
XT_SWIGLU(BFloat16)
#undef XT_SWIGLU

}  // namespace xtrain
