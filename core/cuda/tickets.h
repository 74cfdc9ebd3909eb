#pragma once
// Numbers 0, 1, 2, ... that the blocks of a kernel draw to learn what to work on next, where the
// pieces of work differ in length too much to be dealt out beforehand, or who is the last.
//
// They belong to the queue: a kernel that draws them does so behind all kernels before it, however
// it was launched, so its stream runs one of them at a time. The last block to finish sets them
// back for the next kernel.

#include <cuda_runtime.h>

namespace xtrain {

struct Tickets {
  int* drawn = nullptr;     // how many; in device memory, 0 between kernels
  int* finished = nullptr;  // blocks that draw no more; the same

#if defined(__CUDACC__)
  // By one thread.
  __device__ int draw() const {
    return atomicAdd(drawn, 1);
  }
  // By one thread of each block, which then draws no more.
  __device__ void finish() const {
    if (atomicAdd(finished, 1) != static_cast<int>(gridDim.x) - 1) return;
    *drawn = 0;
    *finished = 0;
  }
#endif
};

}  // namespace xtrain
