#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;

int64_t block_size(int64_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

void* system_block(int64_t size) {
  if (size < kHugePage) return std::aligned_alloc(kAllocationAlignment, size);
  const int64_t pages = (size + kHugePage - 1) / kHugePage * kHugePage;
  void* block = std::aligned_alloc(kHugePage, pages);
  if (block) madvise(block, pages, MADV_HUGEPAGE);  // a hint; refusal costs only speed
  return block;
}

}  // namespace

void* Allocator::allocate(int64_t bytes) {
  check(bytes >= 0, "allocator: size must not be negative; got ", bytes);
  if (bytes == 0) return nullptr;
  void* block = take_block(bytes);
  check(block != nullptr, "allocator: out of memory: ", bytes, " bytes wanted, ", current_bytes(),
        " in use; use a smaller batch or sequence");
  const int64_t current = current_ += bytes;
  int64_t peak = peak_;
  while (current > peak && !peak_.compare_exchange_weak(peak, current)) {
  }
  return block;
}

void Allocator::free(void* block, int64_t bytes) {
  if (!block) return;
  current_ -= bytes;
  return_block(block, bytes);
}

CpuAllocator::~CpuAllocator() {
  release_cached();
}

void* CpuAllocator::take_block(int64_t bytes) {
  constexpr int64_t kLargest = int64_t{1} << 50;
  if (bytes > kLargest) return nullptr;
  const int64_t size = block_size(bytes);
  std::lock_guard lock(mutex_);
  if (const auto found = cached_.find(size); found != cached_.end() && !found->second.empty()) {
    void* block = found->second.back();
    found->second.pop_back();
    cached_bytes_ -= size;
    return block;
  }
  // Sizes have changed (another batch, validation): do not hold on to blocks nobody asks for.
  constexpr int64_t kSpare = int64_t{64} << 20;
  if (current_bytes() + cached_bytes_ + size > peak_bytes() + peak_bytes() / 4 + kSpare) {
    release_cached();
  }
  void* block = system_block(size);
  if (!block) {
    release_cached();
    block = system_block(size);
  }
  return block;
}

void CpuAllocator::return_block(void* block, int64_t bytes) {
  if (!cache_) return std::free(block);
  const int64_t size = block_size(bytes);
  std::lock_guard lock(mutex_);
  cached_[size].push_back(block);
  cached_bytes_ += size;
}

void CpuAllocator::release_cached() {
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) std::free(block);
  }
  cached_.clear();
  cached_bytes_ = 0;
}

}  // namespace xtrain
