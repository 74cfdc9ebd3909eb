#pragma once
// Kernels that may start while the one in front of them in the stream still ends ("programmatic
// dependent launch", from compute capability 9.0 on). Where kernels are as short as their start
// takes, as when a model writes one token after the other, that is half of the time.
//
// A kernel launched with LaunchShape::early must call wait_for_kernel_before before it reads or
// writes any memory of the device; before that it may set itself up, and prefetch, which changes
// nothing. let_next_kernel_start, which any kernel may call after that, says that the next one may
// be brought in; without it that happens when the kernel ends.

#include <cuda_runtime.h>

namespace xtrain {

__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Brings the line of memory that holds the address nearer.
__device__ inline void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace xtrain
