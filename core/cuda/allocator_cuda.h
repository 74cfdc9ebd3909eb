#pragma once
// GPU memory and pinned host memory.

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <vector>

#include "core/allocator.h"
#include "core/cuda/queue_cuda.h"

namespace xtrain {

// Memory in the order of a stream: a block that is freed while a kernel still uses it is handed out
// only to work behind that kernel, and nothing waits. Freed blocks stay with the pool.
class CudaAllocator final : public Allocator {
 public:
  // Without the pool every tensor is a block of the driver by itself, whose borders
  // compute-sanitizer watches.
  CudaAllocator(int device, std::shared_ptr<CudaQueue> queue, bool pool);
  ~CudaAllocator() override;

 private:
  void* take_block(int64_t bytes) override;
  void return_block(void* block, int64_t bytes) override;

  std::shared_ptr<CudaQueue> queue_;
  cudaMemPool_t pool_ = nullptr;  // null: none
};

// Page-locked host memory, which copies reach without a detour. Freed blocks are kept, since
// locking pages takes long.
class PinnedAllocator final : public Allocator {
 public:
  ~PinnedAllocator() override;

 private:
  void* take_block(int64_t bytes) override;
  void return_block(void* block, int64_t bytes) override;

  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> free_;  // by size
};

}  // namespace xtrain
