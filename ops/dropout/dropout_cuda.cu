#include <cmath>

#include "core/cuda/elementwise.h"
#include "core/cuda/pack.h"
#include "ops/dropout/dropout_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256, kBlocksPerMultiprocessor = 8;
constexpr int kQuad = 4;  // numbers of one Philox call

// What one thread does at a time: whole quads and, where kPacked, whole packs.
template <class T>
inline constexpr int kRun = kPackSize<T> > kQuad ? kPackSize<T> : kQuad;

template <class A>
struct Keep {
  A scale;
  uint32_t threshold;  // of the upper 24 bits of a word
  __device__ A operator()(A x, uint32_t word) const {
    return (word >> 8) >= threshold ? x * scale : A{0};
  }
};

// Runs are counted row by row; the last one of a row may be short unless kPacked.
template <bool kPacked, class T>
__global__ void __launch_bounds__(kThreads)
    drop(RandomKey random, uint64_t site, Keep<Accumulator<T>> keep, int64_t rows, int64_t length,
         const T* x, T* y) {
  constexpr int kCount = kRun<T>;
  const RandomStream stream = random_stream(random, site);
  const int64_t first_sequence = random.first_sequence ? *random.first_sequence : 0;
  const int64_t runs = ceil_div(length, kCount), step = int64_t{gridDim.x} * kThreads;
  const int64_t begin = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  // A thread's next run lies `rows_on` rows and `runs_on` runs further.
  const int64_t rows_on = step / runs, runs_on = step % runs;
  int64_t run = begin % runs;
  for (int64_t row = begin / runs; row < rows; row += rows_on) {
    const int64_t first = run * kCount, start = row * length + first;
    uint32_t words[kCount];
#pragma unroll
    for (int q = 0; q < kCount / kQuad; ++q) {
      const Philox4 four = stream.quad(first_sequence + row, first / kQuad + q);
#pragma unroll
      for (int j = 0; j < kQuad; ++j) words[q * kQuad + j] = four.word[j];
    }
    if constexpr (kPacked) {
      auto values = load_elements<kCount>(x + start);
#pragma unroll
      for (int j = 0; j < kCount; ++j) values.at[j] = keep(values.at[j], words[j]);
      store_elements(y + start, values);
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (first + j < length) y[start + j] = keep(x[start + j], words[j]);
      }
    }
    run += runs_on;
    if (run >= runs) {
      run -= runs;
      ++row;
    }
  }
}

}  // namespace

template <class T>
void dropout_apply(const Cuda& cuda, const Dropout& dropout, const RandomKey& random, int64_t rows,
                   int64_t length, const T* x, T* y) {
  using A = Accumulator<T>;
  // uniform_float(word) >= p in integers: the upper 24 bits against p 2^24 rounded up.
  const Keep<A> keep{static_cast<A>(1.0 / (1.0 - dropout.p)),
                     static_cast<uint32_t>(std::ceil(dropout.p * 0x1p24))};
  const bool packed = length % kRun<T> == 0 && fits_packs(length, x, y);
  const int64_t blocks = ceil_div(rows * ceil_div(length, kRun<T>), kThreads);
  // Each thread makes the stream's key, so few threads do much.
  const int64_t most = int64_t{gpu_of(cuda).multiprocessors} * kBlocksPerMultiprocessor;
  XT_LAUNCH(cuda, (LaunchShape{dim3(static_cast<unsigned>(std::min(blocks, most))), kThreads}),
            (packed ? drop<true, T> : drop<false, T>), random, dropout.site, keep, rows, length, x,
            y);
}

#define XT_DROPOUT(T)                                                                          \
  template void dropout_apply(const Cuda&, const Dropout&, const RandomKey&, int64_t, int64_t, \
                              const T*, T*);
XT_DROPOUT(double)
XT_DROPOUT(float)
XT_DROPOUT(BFloat16)
#undef XT_DROPOUT

}  // namespace xtrain
