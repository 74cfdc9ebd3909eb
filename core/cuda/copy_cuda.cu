#include "core/convert.h"
#include "core/copy_kernels.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/strided_cuda.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;

struct Replace {
  template <class From, class To>
  __device__ static To of(To, From source) {
    return convert<To>(source);
  }
};

struct Accumulate {
  template <class From, class To>
  __device__ static To of(To target, From source) {
    return add_converted(target, source);
  }
};

// Elements that a thread moves at once where both sides lie without gaps: 16 bytes of the wider.
template <class From, class To>
inline constexpr int kRun = 16 /
                            static_cast<int>(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Run {
  T value[kCount];
};

template <class Rule, class From, class To>
__global__ void combine_flat(int64_t runs, const From* source, To* target) {
  begin_behind_others();
  constexpr int kCount = kRun<From, To>;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < runs; i += stride) {
    const auto x = reinterpret_cast<const Run<From, kCount>*>(source)[i];
    auto* place = reinterpret_cast<Run<To, kCount>*>(target) + i;
    Run<To, kCount> y;
    if constexpr (std::is_same_v<Rule, Accumulate>) y = *place;
#pragma unroll
    for (int j = 0; j < kCount; ++j) y.value[j] = Rule::of(y.value[j], x.value[j]);
    *place = y;
  }
}

template <class Rule, class From, class To>
__global__ void combine_strided(StridedIndex<2> index, int64_t first, const From* source,
                                To* target) {
  begin_behind_others();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = first + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < index.count;
       i += stride) {
    int64_t at[2];
    index.offsets(i, at);
    target[at[1]] = Rule::of(target[at[1]], source[at[0]]);
  }
}

template <class Rule, class From, class To>
void combine(const Cuda& cuda, const Shape& shape, const From* source, const Strides& from,
             To* target, const Strides& to) {
  const StridedIndex<2> index(shape, {from, to});
  if (index.count == 0) return;
  const bool aligned = reinterpret_cast<uintptr_t>(source) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(target) % 16 == 0;
  int64_t done = 0;
  if (index.is_flat(0) && index.is_flat(1) && aligned) {
    const int64_t runs = index.count / kRun<From, To>;
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(runs, kThreads), kThreads}),
                    (combine_flat<Rule, From, To>), runs, source, target);
    done = runs * kRun<From, To>;
  }
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(index.count - done, kThreads), kThreads}),
                  (combine_strided<Rule, From, To>), index, done, source, target);
}

template <class T>
__global__ void fill_strided(StridedIndex<1> index, T value, T* target) {
  begin_behind_others();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < index.count; i += stride) {
    int64_t at[1];
    index.offsets(i, at);
    target[at[0]] = value;
  }
}

}  // namespace

template <class From, class To>
void copy_elements(const Cuda& cuda, const Shape& shape, const From* source, const Strides& from,
                   To* target, const Strides& to) {
  combine<Replace>(cuda, shape, source, from, target, to);
}

template <class From, class To>
void add_elements(const Cuda& cuda, const Shape& shape, const From* source, const Strides& from,
                  To* target, const Strides& to) {
  combine<Accumulate>(cuda, shape, source, from, target, to);
}

template <class T>
void fill_elements(const Cuda& cuda, const Shape& shape, T value, T* target, const Strides& to) {
  const StridedIndex<1> index(shape, {to});
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(index.count, kThreads), kThreads}), fill_strided<T>,
                  index, value, target);
}

XT_COPY_KERNELS(Cuda);

}  // namespace xtrain
