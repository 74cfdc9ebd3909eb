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
  begin_behind_others();
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
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(packed, kMapThreads * kCount), kMapThreads}),
                  (map_runs<kCount, F, Out, T, kTensors>), f, int64_t{0}, packed, inputs, y);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(n - packed, kMapThreads), kMapThreads}),
                  (map_runs<1, F, Out, T, kTensors>), f, packed, n, inputs, y);
}

// The same for elements of two inputs and two outputs, which may each be an input:
// first[i] = f(x[i], y[i]), second[i] = g(x[i]).
template <int kCount, class F, class G, class T>
__global__ void __launch_bounds__(kMapThreads)
    map_pairs(F f, G g, int64_t begin, int64_t end, const T* x, const T* y, T* first, T* second) {
  begin_behind_others();
  const int64_t i = begin + (int64_t{blockIdx.x} * kMapThreads + threadIdx.x) * kCount;
  if (i >= end) return;
  const auto xs = load_elements<kCount>(x + i), ys = load_elements<kCount>(y + i);
  Elements<Accumulator<T>, kCount> firsts, seconds;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    firsts.at[j] = f(xs.at[j], ys.at[j]);
    seconds.at[j] = g(xs.at[j]);
  }
  store_elements(first + i, firsts);
  store_elements(second + i, seconds);
}

template <class F, class G, class T>
void map_to_two(const Cuda& cuda, F f, G g, int64_t n, const T* x, const T* y, T* first,
                T* second) {
  constexpr int kCount = kPackSize<T>;
  const int64_t packed = fits_packs(0, x, y, first, second) ? n / kCount * kCount : 0;
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(packed, kMapThreads * kCount), kMapThreads}),
                  (map_pairs<kCount, F, G, T>), f, g, int64_t{0}, packed, x, y, first, second);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(n - packed, kMapThreads), kMapThreads}),
                  (map_pairs<1, F, G, T>), f, g, packed, n, x, y, first, second);
}

// What is left of elements once they are stored.
template <class T, int kCount>
__device__ Elements<Accumulator<T>, kCount> as_stored(Elements<Accumulator<T>, kCount> elements) {
  if constexpr (kCount == kPackSize<T>) {
    return values_of(pack_of<T>(elements));
  } else {
#pragma unroll
    for (auto& v : elements.at) v = static_cast<Accumulator<T>>(static_cast<T>(v));
    return elements;
  }
}

// map_pairs for rows of `columns` elements, which are multiples of kCount, and the sums of `first`
// over each block of kSumRows rows, [blocks, columns]. A block has a strip of kWarp kCount columns,
// and threadIdx.y tells its rows apart. A thread asks for kBatch rows before it writes the first,
// which may lie where another is read.
inline constexpr int kSumRows = 128;
template <int kCount, class F, class G, class T>
__global__ void __launch_bounds__(kMapThreads)
    map_pairs_and_sum(F f, G g, int64_t rows, int64_t columns, const T* x, const T* y, T* first,
                      T* second, Accumulator<T>* sums) {
  begin_behind_others();
  using A = Accumulator<T>;
  using Neighbours = Elements<A, kCount>;
  constexpr int kAcross = kMapThreads / kWarp, kStrip = kWarp * kCount, kBatch = 2;
  __shared__ Neighbours of_threads[kAcross][kWarp];
  const int64_t strips = ceil_div(columns, kStrip);
  const int64_t block = blockIdx.x / strips, strip = blockIdx.x % strips * kStrip;
  const int64_t column = strip + threadIdx.x * kCount;
  const int64_t end = column < columns ? min(rows, (block + 1) * kSumRows) : 0;
  Neighbours sum = {};
  for (int64_t row = block * kSumRows + threadIdx.y; row < end; row += kBatch * kAcross) {
    Neighbours xs[kBatch], ys[kBatch];
    const auto for_batch = [&](auto body) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int64_t at = row + b * kAcross;
        if (at < end) body(b, at * columns + column);
      }
    };
    for_batch([&](int b, int64_t at) {
      xs[b] = load_elements<kCount>(x + at);
      ys[b] = load_elements<kCount>(y + at);
    });
    for_batch([&](int b, int64_t at) {
      Neighbours firsts, seconds;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        firsts.at[j] = f(xs[b].at[j], ys[b].at[j]);
        seconds.at[j] = g(xs[b].at[j]);
      }
      store_elements(first + at, firsts);
      store_elements(second + at, seconds);
      const Neighbours terms = as_stored<T, kCount>(firsts);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum.at[j] += terms.at[j];
    });
  }
  of_threads[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kStrip; i += kMapThreads) {
    A total = 0;
#pragma unroll
    for (int k = 0; k < kAcross; ++k) total += of_threads[k][i / kCount].at[i % kCount];
    if (strip + i < columns) sums[block * columns + strip + i] = total;
  }
}

template <class F, class G, class T>
void map_to_two_and_sum(const Cuda& cuda, F f, G g, int64_t rows, int64_t columns, const T* x,
                        const T* y, T* first, T* second, Accumulator<T>* sums) {
  if (columns == 0) return;
  const dim3 threads(kWarp, kMapThreads / kWarp);
  const auto shape = [&](int count) {
    const int64_t strips = ceil_div(columns, kWarp * count);
    return LaunchShape{grid_for(strips * ceil_div(rows, kSumRows), 1), threads};
  };
  constexpr int kCount = kPackSize<T>;
  if (fits_packs(columns, x, y, first, second)) {
    XT_LAUNCH_AHEAD(cuda, shape(kCount), (map_pairs_and_sum<kCount, F, G, T>), f, g, rows, columns,
                    x, y, first, second, sums);
  } else {
    XT_LAUNCH_AHEAD(cuda, shape(1), (map_pairs_and_sum<1, F, G, T>), f, g, rows, columns, x, y,
                    first, second, sums);
  }
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

// The same with kept = x, and y[i] = F::value(x[i]). dx and y may each be x or dy.
template <class F, class T>
void elementwise_backward_and_value(const Cuda& cuda, F, int64_t n, const T* x, const T* dy, T* dx,
                                    T* y) {
  using A = Accumulator<T>;
  map_to_two(cuda, ChainRule<F, A>(), ValueOf<F, A>(), n, x, dy, dx, y);
}

// The same for rows of `columns` elements, and the sums of dx over each block of kSumRows rows.
template <class F, class T>
void elementwise_backward_and_sums(const Cuda& cuda, F, int64_t rows, int64_t columns, const T* x,
                                   const T* dy, T* dx, T* y, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  map_to_two_and_sum(cuda, ChainRule<F, A>(), ValueOf<F, A>(), rows, columns, x, dy, dx, y, sums);
}

}  // namespace xtrain
