#pragma once
// Reductions from threads to a warp, a block and a grid. The order of the operations depends on the
// shape of the launch alone, so the result has the same bits every time. See docs/reductions.md.
//
//   thread   each combines its own elements in a loop
//   warp     warp_reduce: five exchanges; every lane has the result
//   block    block_reduce: one value a warp through shared memory; every thread has the result
//   grid     each block writes one partial result; a second kernel combines them in their order

#include <cuda_runtime.h>

#include "core/cuda/launch.h"

namespace xtrain {

// Several values reduced at once, for the price of one pass through shared memory.
template <class A, int n>
struct Several {
  A value[n];
};

struct Add {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
  template <class A, int n>
  __device__ Several<A, n> operator()(Several<A, n> a, const Several<A, n>& b) const {
#pragma unroll
    for (int i = 0; i < n; ++i) a.value[i] += b.value[i];
    return a;
  }
};

// A NaN gives way to a number.
struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// The value of the lane whose number differs in the bits of `mask`.
template <class A>
__device__ A exchange(A x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <class A, int n>
__device__ Several<A, n> exchange(Several<A, n> x, int mask) {
#pragma unroll
  for (int i = 0; i < n; ++i) x.value[i] = exchange(x.value[i], mask);
  return x;
}

// Over groups of `kLanes` neighbouring lanes (a power of two). All 32 lanes must call it. Both
// partners of an exchange compute op(own, other), which must commute bit for bit.
template <int kLanes = kWarp, class A, class Op>
__device__ A warp_reduce(A x, Op op) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x = op(x, exchange(x, mask));
  return x;
}

// Over the threads of a block that have one threadIdx.y; there must be whole warps of them along x,
// and at most 1024 threads in the block. All threads of the block must call it, with scratch for
// kWarp values in shared memory, which is free again on return. `identity` is the value that
// changes nothing.
template <class A, class Op>
__device__ A block_reduce(A x, Op op, A identity, A* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  x = warp_reduce(x, op);
  if (warps == 1) return x;
  scratch += threadIdx.y * warps;
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_reduce(lane < warps ? scratch[lane] : identity, op);
  __syncthreads();  // the next reduction may write scratch
  return x;
}

}  // namespace xtrain
