#pragma once
// Host memory that counts how often it was asked for.

#include <cstdlib>

#include "core/allocator.h"

namespace xtrain {

class CountingAllocator final : public Allocator {
 public:
  int64_t allocations() const { return allocations_; }

 private:
  void* take_block(int64_t bytes) override {
    ++allocations_;
    const int64_t padded = (bytes + kAllocationAlignment - 1) / kAllocationAlignment;
    return std::aligned_alloc(kAllocationAlignment, padded * kAllocationAlignment);
  }
  void return_block(void* block, int64_t) override { std::free(block); }

  int64_t allocations_ = 0;
};

}  // namespace xtrain
