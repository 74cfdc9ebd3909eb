#pragma once
// Launching kernels on a context's stream.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cuda/check.h"
#include "core/cuda/queue_cuda.h"

namespace xtrain {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;  // dynamic
};

inline constexpr int kWarp = 32;

// a / b rounded up, for a >= 0.
__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A one-dimensional grid for `count` pieces of work of which a block does `per_block`. At most
// kMostBlocks blocks: kernels walk over the rest with a grid-stride loop.
inline constexpr int64_t kMostBlocks = int64_t{1} << 30;
inline dim3 grid_for(int64_t count, int64_t per_block) {
  return dim3(static_cast<unsigned>(std::min(ceil_div(count, per_block), kMostBlocks)));
}

template <class... P>
void launch(const Cuda& cuda, const LaunchShape& shape, void (*kernel)(P...), const char* name,
            const char* file, int line, std::type_identity_t<P>... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;  // nothing to do
  constexpr int64_t kWithoutAsking = 16 << 10;  // of 48 KiB, which static memory counts against too
  if (shape.shared_bytes > kWithoutAsking) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               name, file, line);
  }
  const CudaQueue& queue = queue_of(cuda);
  kernel<<<shape.grid, shape.block, shape.shared_bytes, queue.stream()>>>(args...);
  check_cuda(cudaGetLastError(), name, file, line);
  if (queue.waits_after_launch()) {
    check_cuda(cudaStreamSynchronize(queue.stream()), name, file, line);
  }
}

}  // namespace xtrain

// XT_LAUNCH(cuda, (LaunchShape{grid, block, shared}), (kernel<T, 4>), args...). Nothing is launched
// for an empty grid.
#define XT_LAUNCH(cuda, shape, kernel, ...) \
  ::xtrain::launch((cuda), (shape), (kernel), #kernel, __FILE__, __LINE__, __VA_ARGS__)
