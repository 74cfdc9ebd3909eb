#include "core/context.h"
#include "core/cuda/allocator_cuda.h"
#include "core/cuda/check.h"
#include "core/error.h"
#include "core/parallel.h"

namespace xtrain {

// A machine without a driver has no GPU, which is no error.
int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_device_name(int index) {
  cudaDeviceProp properties;
  XT_CUDA(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

Context cuda_context(int index, const CudaOptions& options, int threads) {
  const int count = cuda_device_count();
  check(index >= 0 && index < count, "device cuda:", index, ": this process sees ", count,
        " GPUs; use cpu or a smaller index");
  Context ctx;
  ctx.device = Device{DeviceType::cuda, index};
  ctx.threads = threads == 0 ? available_cores() : threads;
  ctx.gemm = GemmBackend::library;
  const auto queue = std::make_shared<CudaQueue>(index, options);
  ctx.queue = queue;
  ctx.allocator = std::make_shared<CudaAllocator>(index, queue, options.pool);
  ctx.host_allocator = std::make_shared<PinnedAllocator>();
  return ctx;
}

}  // namespace xtrain
