#include "core/cuda/allocator_cuda.h"

#include "core/cuda/check.h"

namespace xtrain {

CudaAllocator::CudaAllocator(int device, std::shared_ptr<CudaQueue> queue, bool pool)
    : queue_(std::move(queue)) {
  if (!pool) return;
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  XT_CUDA(cudaMemPoolCreate(&pool_, &props));
  uint64_t keep_all = UINT64_MAX;
  XT_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all));
}

CudaAllocator::~CudaAllocator() {
  if (pool_) cudaMemPoolDestroy(pool_);
}

void* CudaAllocator::take_block(int64_t bytes) {
  void* block = nullptr;
  const cudaError_t status = pool_ ? cudaMallocFromPoolAsync(&block, bytes, pool_, queue_->stream())
                                   : cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the caller reports it
    return nullptr;
  }
  XT_CUDA(status);
  return block;
}

// Runs in destructors, also after an error of the device, and so cannot throw.
void CudaAllocator::return_block(void* block, int64_t) {
  pool_ ? cudaFreeAsync(block, queue_->stream()) : cudaFree(block);
}

PinnedAllocator::~PinnedAllocator() {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) cudaFreeHost(block);
  }
}

void* PinnedAllocator::take_block(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (auto& blocks = free_[bytes]; !blocks.empty()) {
    void* block = blocks.back();
    blocks.pop_back();
    return block;
  }
  void* block = nullptr;
  return cudaMallocHost(&block, bytes) == cudaSuccess ? block : nullptr;
}

void PinnedAllocator::return_block(void* block, int64_t bytes) {
  std::lock_guard lock(mutex_);
  free_[bytes].push_back(block);
}

}  // namespace xtrain
