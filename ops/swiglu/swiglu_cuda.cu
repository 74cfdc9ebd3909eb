#include "core/cuda/elementwise.h"
#include "core/cuda/sigmoid.h"
#include "ops/swiglu/swiglu_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;

// Where element i of y [rows, width] finds its gate in gate_up; its up lies `width` behind.
__device__ int64_t gate_of(int64_t i, int64_t width) {
  return i + i / width * width;
}

// Threads take kCount neighbours of a row of y at a time.
template <int kCount, class T>
__global__ void __launch_bounds__(kThreads)
    gate_forward(int64_t n, int64_t width, const T* gate_up, T* y) {
  begin_behind_others();
  const int64_t step = int64_t{gridDim.x} * kThreads * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    const T* gates = gate_up + gate_of(i, width);
    const auto gate = load_elements<kCount>(gates), up = load_elements<kCount>(gates + width);
    Elements<Accumulator<T>, kCount> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      out.at[j] = times_sigmoid<T>(gate.at[j], gate.at[j]) * up.at[j];
    }
    store_elements(y + i, out);
  }
}

template <int kCount, bool kRebuilds, class T>
__global__ void __launch_bounds__(kThreads)
    gate_backward(int64_t n, int64_t width, const T* gate_up, const T* dy, T* dgate_up, T* y) {
  begin_behind_others();
  using A = Accumulator<T>;
  const int64_t step = int64_t{gridDim.x} * kThreads * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    const int64_t at = gate_of(i, width);
    const auto gate = load_elements<kCount>(gate_up + at);
    const auto up = load_elements<kCount>(gate_up + at + width);
    const auto upstream = load_elements<kCount>(dy + i);
    Elements<A, kCount> dgate, dup, out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const A x = gate.at[j], d = upstream.at[j], s = sigmoid<T>(x);
      dgate.at[j] = d * up.at[j] * s * (1 + x * (1 - s));
      dup.at[j] = d * x * s;
      if constexpr (kRebuilds) out.at[j] = times_sigmoid<T>(x, x) * up.at[j];
    }
    store_elements(dgate_up + at, dgate);
    store_elements(dgate_up + at + width, dup);
    if constexpr (kRebuilds) store_elements(y + i, out);
  }
}

}  // namespace

template <class T>
void swiglu_forward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, T* y) {
  const bool packs = fits_packs(width, gate_up, y);
  const int count = packs ? kPackSize<T> : 1;
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(rows * width, kThreads * count), kThreads}),
                  (packs ? gate_forward<kPackSize<T>, T> : gate_forward<1, T>), rows * width, width,
                  gate_up, y);
}

template <class T>
void swiglu_backward(const Cuda& cuda, int64_t rows, int64_t width, const T* gate_up, const T* dy,
                     T* dgate_up, T* y) {
  const bool packs = fits_packs(width, gate_up, dy, dgate_up, y);
  const int count = packs ? kPackSize<T> : 1;
  const auto kernel =
      y ? (packs ? gate_backward<kPackSize<T>, true, T> : gate_backward<1, true, T>)
        : (packs ? gate_backward<kPackSize<T>, false, T> : gate_backward<1, false, T>);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(rows * width, kThreads * count), kThreads}), kernel,
                  rows * width, width, gate_up, dy, dgate_up, y);
}

#define XT_SWIGLU(T)                                                         \
  template void swiglu_forward(const Cuda&, int64_t, int64_t, const T*, T*); \
  template void swiglu_backward(const Cuda&, int64_t, int64_t, const T*, const T*, T*, T*);
XT_SWIGLU(double)
XT_SWIGLU(float)
XT_SWIGLU(BFloat16)
#undef XT_SWIGLU

}  // namespace xtrain
