#pragma once
// Loops of kernels that compute each element by itself from the elements at its place, in the
// accumulator type. They move 16 bytes a thread and tensor at once where the tensors allow it.

#include <utility>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"

namespace xtrain {

// The tensors that a function of kCount arguments reads.
template <class T, int kTensors>
struct Inputs {
  const T* data[kTensors];
};

// f of each place's elements, one from each input.
template <class F, class A, int kCount, size_t... kInput>
__device__ Elements<A, kCount> apply(F f, const Elements<A, kCount>* x,
                                     std::index_sequence<kInput...>) {
  Elements<A, kCount> y;
#pragma unroll
  for (int i = 0; i < kCount; ++i) y.at[i] = f(x[kInput].at[i]...);
  return y;
}

inline constexpr int kMapThreads = 256;

// Elements [begin, end), kCount a thread.
template <int kCount, class F, class Out, class T, int kTensors>
__global__ void __launch_bounds__(kMapThreads)
    map_runs(F f, int64_t begin, int64_t end, Inputs<T, kTensors> x, Out* y) {
  const int64_t i = begin + (int64_t{blockIdx.x} * kMapThreads + threadIdx.x) * kCount;
  if (i >= end) return;
  Elements<Accumulator<T>, kCount> in[kTensors];
#pragma unroll
  for (int t = 0; t < kTensors; ++t) in[t] = load_elements<kCount>(x.data[t] + i);
  store_elements(y + i, apply(f, in, std::make_index_sequence<kTensors>()));
}

// y[i] = f(x[i], rest[i]...) for n contiguous elements. y may be an input. The grid has a thread
// for everything: kMostBlocks blocks reach further than a GPU's memory.
template <class F, class Out, class T, class... Rest>
void map(const Cuda& cuda, F f, int64_t n, Out* y, const T* x, const Rest*... rest) {
  constexpr int kTensors = 1 + sizeof...(Rest), kCount = kPackSize<T>;
  const Inputs<T, kTensors> inputs{{x, rest...}};
  const int64_t packed = fits_packs(0, y, x, rest...) ? n / kCount * kCount : 0;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(packed, kMapThreads * kCount), kMapThreads}),
            (map_runs<kCount, F, Out, T, kTensors>), f, int64_t{0}, packed, inputs, y);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(n - packed, kMapThreads), kMapThreads}),
            (map_runs<1, F, Out, T, kTensors>), f, packed, n, inputs, y);
}

template <class F, class A>
struct ValueOf {
  __device__ A operator()(A x) const { return F::value(x); }
};

template <class F, class A>
struct ChainRule {
  __device__ A operator()(A kept, A dy) const { return dy * F::slope(kept); }
};

// y[i] = F::value(x[i])
template <class F, class T>
void elementwise_forward(const Cuda& cuda, F, int64_t n, const T* x, T* y) {
  map(cuda, ValueOf<F, Accumulator<T>>(), n, y, x);
}

// dx[i] = dy[i] F::slope(kept[i]); dx may be dy.
template <class F, class T>
void elementwise_backward(const Cuda& cuda, F, int64_t n, const T* kept, const T* dy, T* dx) {
  map(cuda, ChainRule<F, Accumulator<T>>(), n, dx, kept, dy);
}

}  // namespace xtrain
