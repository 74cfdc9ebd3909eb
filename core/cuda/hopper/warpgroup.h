#pragma once
// Warpgroups: four consecutive warps, the first at a multiple of four, that run wgmma together.
//
// In a specialised block the first warpgroup feeds the others. It needs few registers, and gives
// those that the kernel gave it to the warpgroups that multiply. Whole warpgroups do so, each role
// in a branch of its own. The giver must give or the takers wait forever; the kernel needs
// __launch_bounds__(threads, 1), or ptxas ignores it.

#include <cuda_runtime.h>

#if defined(__CUDACC__)

namespace xtrain {

inline constexpr int kWarpgroup = 128;

// As a number that the compiler knows to be the same in the whole warp: descriptors of wgmma
// derived from it stay in uniform registers.
__device__ inline int warpgroup_index() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
}
__device__ inline int warp_of_warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32 % 4, 0);
}

// Registers of each thread from here on, a multiple of 8 from 24 to 256.
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier among some warps of a block, by number: 1 .. 15, since __syncthreads has 0. `threads`
// is how many take part, a multiple of 32.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace xtrain

#endif
