#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"
#include "train/clip_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kMostPartials = 1024;

template <class A>
__device__ double square(A x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

// The sum of one block's share. The first `packs` packs are aligned, the rest goes one by one.
template <class A>
__global__ void sum_squares_of_blocks(int64_t n, int64_t packs, const A* x, double* partial) {
  __shared__ double scratch[kWarp];
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = first; i < packs; i += stride) {
    const Pack<A> pack = load_pack(x + i * kPackSize<A>);
#pragma unroll
    for (int j = 0; j < kPackSize<A>; ++j) sum += square(pack.value[j]);
  }
  for (int64_t i = packs * kPackSize<A> + first; i < n; i += stride) sum += square(x[i]);
  sum = block_reduce(sum, Add(), 0.0, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_of_partials(int count, const double* partial, double* sum) {
  __shared__ double scratch[kWarp];
  const double x = threadIdx.x < count ? partial[threadIdx.x] : 0.0;
  const double total = block_reduce(x, Add(), 0.0, scratch);
  if (threadIdx.x == 0) *sum = total;
}

template <class Count>
__global__ void grad_scale_of(const double* squares, const Count* count, double max_norm,
                              double* scale) {
  store_grad_scale(scale_of_sum(*squares, static_cast<double>(*count), max_norm), scale);
}

}  // namespace

template <class A>
void sum_squares(const Cuda& cuda, int64_t n, const A* x, double* sum) {
  const bool aligned = reinterpret_cast<uintptr_t>(x) % sizeof(Pack<A>) == 0;
  const int64_t packs = aligned ? n / kPackSize<A> : 0;
  const int64_t pieces = aligned ? ceil_div(n, kPackSize<A>) : n;
  const int blocks = static_cast<int>(std::min<int64_t>(kMostPartials, ceil_div(pieces, kThreads)));
  Tensor partial = empty(cuda.ctx, {blocks}, Dtype::f64);
  double* partial_sums = partial.mutable_data<double>();
  XT_LAUNCH(cuda, (LaunchShape{dim3(blocks), kThreads}), (sum_squares_of_blocks<A>), n, packs, x,
            partial_sums);
  XT_LAUNCH(cuda, (LaunchShape{1, kMostPartials}), sum_of_partials, blocks, partial_sums, sum);
}

template <class Count>
void compute_grad_scale(const Cuda& cuda, const double* squares, const Count* count,
                        double max_norm, double* scale) {
  XT_LAUNCH(cuda, (LaunchShape{1, 1}), (grad_scale_of<Count>), squares, count, max_norm, scale);
}

template void sum_squares(const Cuda&, int64_t, const double*, double*);
template void sum_squares(const Cuda&, int64_t, const float*, double*);
template void compute_grad_scale(const Cuda&, const double*, const int64_t*, double, double*);
template void compute_grad_scale(const Cuda&, const double*, const double*, double, double*);

}  // namespace xtrain
