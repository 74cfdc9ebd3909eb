#include "core/cuda/launch.h"
#include "ops/beside_test_kernels.h"

namespace xtrain {
namespace {

using Clock = unsigned long long;

__device__ Clock gpu_clock() {
  Clock time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__device__ void grow(GpuSpan* span, Clock moment) {
  atomicMin(reinterpret_cast<Clock*>(&span->first), moment);
  atomicMax(reinterpret_cast<Clock*>(&span->last), moment);
}

__global__ void occupy(Clock longest, uint64_t seed, GpuSpan* span) {
  const Clock start = gpu_clock();
  grow(span, start);
  uint64_t x = (seed * 1000 + blockIdx.x + 1) * 0x9e3779b97f4a7c15ull;
  x ^= x >> 31;
  const Clock duration = x % longest;
  while (gpu_clock() - start < duration) {
  }
  grow(span, gpu_clock());
}

__global__ void note(GpuSpan* span) {
  grow(span, gpu_clock());
}

__global__ void count_words(const uint32_t* x, const uint32_t* y, int64_t words, Clock* count) {
  Clock different = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x) {
    different += x[i] != y[i];
  }
  if (different > 0) atomicAdd(count, different);
}

template <class T>
const uint32_t* words_of(const Tensor& x) {
  return reinterpret_cast<const uint32_t*>(x.data<T>());
}
const uint32_t* words_of(const Tensor& x) {
  return x.dtype() == Dtype::bf16 ? words_of<BFloat16>(x) : words_of<float>(x);
}

}  // namespace

void occupy_gpu(const Cuda& cuda, int blocks, int64_t longest, uint64_t seed, GpuSpan* span) {
  constexpr int64_t kMostOfShared = 160 << 10;
  XT_LAUNCH(cuda, (LaunchShape{blocks, 1, kMostOfShared}), occupy, static_cast<Clock>(longest),
            seed, span);
}

void note_moment(const Cuda& cuda, GpuSpan* span) {
  XT_LAUNCH(cuda, (LaunchShape{1, 1}), note, span);
}

void count_differences(const Cuda& cuda, const Tensor& x, const Tensor& y, int64_t* count) {
  const int64_t words = x.nbytes() / 4;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(words, 1024), 256}), count_words, words_of(x), words_of(y),
            words, reinterpret_cast<Clock*>(count));
}

}  // namespace xtrain
