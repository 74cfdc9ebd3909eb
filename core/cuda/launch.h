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
  // Blocks along x that run at the same time and reach each other's shared memory (sm_90 and
  // newer).
  unsigned cluster = 1;
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

// When a kernel's blocks may take their places; on GPUs other than sm_90 all are `behind`.
enum class Start : uint8_t {
  behind,  // when the kernels before it on the queue are done
  early,   // while those still run, where the context's weights rest
  ahead    // while those still run
};

inline bool begins_before_others_end(const Cuda& cuda, Start start) {
  return (start == Start::ahead || (start == Start::early && cuda.ctx.weights_rest)) &&
         runs_sm90a(cuda) && !queue_of(cuda).waits_after_launch();
}

template <class... P>
void launch(const Cuda& cuda, const LaunchShape& shape, Start start, void (*kernel)(P...),
            const char* name, const char* file, int line, std::type_identity_t<P>... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;  // nothing to do
  constexpr int64_t kWithoutAsking = 16 << 10;  // of 48 KiB, which static memory counts against too
  if (shape.shared_bytes > kWithoutAsking) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               name, file, line);
  }
  const CudaQueue& queue = queue_of(cuda);
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = queue.stream();
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = shape.cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  if (begins_before_others_end(cuda, start)) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, args...), name, file, line);
  check_cuda(cudaGetLastError(), name, file, line);
  if (queue.waits_after_launch()) {
    check_cuda(cudaStreamSynchronize(queue.stream()), name, file, line);
  }
}

// --- kernels that begin early --------------------------------------------------------------------
// "Programmatic dependent launch": a kernel's blocks are in place when its inputs are there, which
// saves the time that the GPU needs from the end of a kernel to the start of the next. One launched
// by XT_LAUNCH_AHEAD calls begin_behind_others first of all. Where a context's weights rest, one
// launched by XT_LAUNCH_EARLY may read weights before that, so that they are on their way, too. On
// GPUs other than sm_90 both functions do nothing.

// The next kernel may begin as soon as all blocks have called it or are done.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until all kernels before this one are done and what they wrote can be seen. Every thread
// must call it before it reads anything but weights and before it writes anything.
__device__ inline void await_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// For the first line of a kernel launched by XT_LAUNCH_AHEAD.
__device__ inline void begin_behind_others() {
  let_next_begin();
  await_kernels_before();
}

}  // namespace xtrain

// XT_LAUNCH(cuda, (LaunchShape{grid, block, shared}), (kernel<T, 4>), args...). Nothing is launched
// for an empty grid.
#define XT_LAUNCH(cuda, shape, kernel, ...) XT_LAUNCH_AT(behind, cuda, shape, kernel, __VA_ARGS__)
// The same for a kernel that begins with begin_behind_others.
#define XT_LAUNCH_AHEAD(cuda, shape, kernel, ...) \
  XT_LAUNCH_AT(ahead, cuda, shape, kernel, __VA_ARGS__)
// The same for a kernel that reads nothing but what rests (Context::weights_rest) before it calls
// await_kernels_before.
#define XT_LAUNCH_EARLY(cuda, shape, kernel, ...) \
  XT_LAUNCH_AT(early, cuda, shape, kernel, __VA_ARGS__)
#define XT_LAUNCH_AT(start, cuda, shape, kernel, ...)                                              \
  ::xtrain::launch((cuda), (shape), ::xtrain::Start::start, (kernel), #kernel, __FILE__, __LINE__, \
                   __VA_ARGS__)
