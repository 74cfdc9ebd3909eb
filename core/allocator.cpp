#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace xtrain {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;

int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// What a block of so many bytes takes. Large ones are whole huge pages.
int64_t block_size(int64_t bytes) {
  return round_up(bytes, bytes < kHugePage ? kAllocationAlignment : kHugePage);
}

// Large blocks are mapped by themselves, so that giving one back gives it to the system, and begin
// at a huge page. Mapping one page more than needed leaves room to cut to that border.
void* map_huge_pages(int64_t size) {
  void* mapped =
      mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  const int64_t lead = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (lead > 0) munmap(begin, lead);
  munmap(begin + lead + size, kHugePage - lead);
  madvise(begin + lead, size, MADV_HUGEPAGE);  // a hint; refusal costs only speed
  return begin + lead;
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

KeptAllocator::~KeptAllocator() {
  for (const Block& block : blocks_) source_->free(block.address, block.bytes);
}

void* KeptAllocator::take_block(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (auto& same = free_[bytes]; !same.empty()) {
    void* block = same.back();
    same.pop_back();
    return block;
  }
  check(!closed_, "allocator: recorded work must ask for the memory of the run before it; it asks ",
        "for ", bytes, " bytes more");
  blocks_.push_back({source_->allocate(bytes), bytes});
  return blocks_.back().address;
}

void KeptAllocator::return_block(void* block, int64_t bytes) {
  std::lock_guard lock(mutex_);
  free_[bytes].push_back(block);
}

CpuAllocator::~CpuAllocator() {
  release_cached();
}

// Without the cache every block is the heap's, whose borders sanitizers watch.
void* CpuAllocator::system_block(int64_t size) {
  return cache_ && size >= kHugePage ? map_huge_pages(size)
                                     : std::aligned_alloc(kAllocationAlignment, size);
}

void CpuAllocator::release_block(void* block, int64_t size) {
  cache_&& size >= kHugePage ? static_cast<void>(munmap(block, size)) : std::free(block);
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
  const int64_t size = block_size(bytes);
  if (!cache_) return release_block(block, size);
  std::lock_guard lock(mutex_);
  cached_[size].push_back(block);
  cached_bytes_ += size;
}

void CpuAllocator::release_cached() {
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) release_block(block, size);
  }
  cached_.clear();
  cached_bytes_ = 0;
}

}  // namespace xtrain
