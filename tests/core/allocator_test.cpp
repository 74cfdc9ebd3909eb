#include "core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

// Counts the bytes that it has from the system. The process's own size would not do: the threads of
// other libraries map memory at any time.
class MeasuredAllocator final : public CpuAllocator {
 public:
  int64_t held_bytes() const { return held_; }

 protected:
  void* system_block(int64_t size) override {
    void* block = CpuAllocator::system_block(size);
    if (block) held_ += size;
    return block;
  }
  // What is still mapped was not given back.
  void release_block(void* block, int64_t size) override {
    CpuAllocator::release_block(block, size);
    if (!is_mapped(block, size)) held_ -= size;
  }

 private:
  // Whether each page from `block`, which begins one, on is mapped.
  static bool is_mapped(void* block, int64_t size) {
    std::vector<unsigned char> resident(size / sysconf(_SC_PAGESIZE) + 1);
    return mincore(block, size, resident.data()) == 0;
  }

  int64_t held_ = 0;
};

}  // namespace

TEST_CASE("the allocator counts current and peak bytes", "[core]") {
  for (bool cache : {true, false}) {
    INFO("cache " << cache);
    CpuAllocator allocator(cache);
    void* a = allocator.allocate(1000);
    void* b = allocator.allocate(500);
    CHECK(allocator.current_bytes() == 1500);
    CHECK(allocator.peak_bytes() == 1500);
    allocator.free(a, 1000);
    CHECK(allocator.current_bytes() == 500);
    CHECK(allocator.peak_bytes() == 1500);
    allocator.reset_peak();
    CHECK(allocator.peak_bytes() == 500);
    void* c = allocator.allocate(200);
    CHECK(allocator.peak_bytes() == 700);
    allocator.free(b, 500);
    allocator.free(c, 200);
    CHECK(allocator.current_bytes() == 0);
  }
}

TEST_CASE("a freed block is handed out again for the next request of its size", "[core]") {
  CpuAllocator allocator;
  void* first = allocator.allocate(1000);
  allocator.free(first, 1000);
  void* second = allocator.allocate(1010);  // the same multiple of the alignment
  CHECK(second == first);
  void* third = allocator.allocate(1010);
  CHECK(third != first);
  allocator.free(second, 1010);
  allocator.free(third, 1010);
}

TEST_CASE("blocks are aligned, writable to the end and apart", "[core]") {
  CpuAllocator allocator(false);
  for (int64_t bytes : {int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257}, int64_t{5} << 20}) {
    void* a = allocator.allocate(bytes);
    void* b = allocator.allocate(bytes);
    INFO(bytes << " bytes");
    CHECK(reinterpret_cast<uintptr_t>(a) % kAllocationAlignment == 0);
    std::memset(a, 1, bytes);
    std::memset(b, 2, bytes);
    CHECK(static_cast<unsigned char*>(a)[bytes - 1] == 1);
    allocator.free(a, bytes);
    allocator.free(b, bytes);
  }
}

TEST_CASE("nothing costs nothing and the impossible is refused with its size", "[core]") {
  CpuAllocator allocator;
  CHECK(allocator.allocate(0) == nullptr);
  allocator.free(nullptr, 0);
  CHECK(allocator.current_bytes() == 0);
  CHECK_THROWS_WITH(allocator.allocate(-1), "allocator: size must not be negative; got -1");
  CHECK_THROWS_WITH(allocator.allocate(int64_t{1} << 60),
                    "allocator: out of memory: 1152921504606846976 bytes wanted, 0 in use; use a "
                    "smaller batch or sequence");
  CHECK(allocator.current_bytes() == 0);
  CHECK(allocator.peak_bytes() == 0);
}

TEST_CASE("cached blocks of sizes nobody asks for are given back", "[core]") {
  // The cache may exceed the peak by a quarter and 64 MiB, and no more: many sizes, one at a time,
  // must not pile up to 64 blocks of 64 to 190 MiB.
  MeasuredAllocator allocator;
  int64_t most = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t bytes = (64 + 2 * i) << 20;
    void* block = allocator.allocate(bytes);
    most = std::max(most, allocator.held_bytes());
    allocator.free(block, bytes);
  }
  CHECK(most >= int64_t{190} << 20);
  CHECK(most <= allocator.peak_bytes() + allocator.peak_bytes() / 4 + (int64_t{64} << 20));
}

TEST_CASE("tensors give their memory back with their last view", "[core]") {
  const Context ctx = cpu_context(1);
  Tensor view;
  {
    const Tensor x = empty(ctx, {10, 10}, Dtype::f64);
    CHECK(ctx.allocator->current_bytes() == 800);
    view = x.slice(0, 3, 1);
  }
  CHECK(ctx.allocator->current_bytes() == 800);
  CHECK(view.is_sole_holder());
  view = Tensor();
  CHECK(ctx.allocator->current_bytes() == 0);
  CHECK(ctx.allocator->peak_bytes() == 800);
}

TEST_CASE("a kept block is handed out again until its allocator ends", "[core]") {
  const auto source = std::make_shared<CpuAllocator>();
  {
    KeptAllocator kept(source);
    void* const a = kept.allocate(1000);
    void* const b = kept.allocate(1000);
    kept.free(a, 1000);
    kept.free(b, 1000);
    CHECK(source->current_bytes() == 2000);
    CHECK(kept.current_bytes() == 0);
    kept.close();
    CHECK(kept.allocate(1000) == b);  // the last one first
    CHECK(kept.allocate(1000) == a);
    CHECK_THROWS_WITH(kept.allocate(1000),
                      "allocator: recorded work must ask for the memory of the run before it; it "
                      "asks for 1000 bytes more");
    CHECK_THROWS_AS(kept.allocate(999), Error);
    kept.free(a, 1000);
    kept.free(b, 1000);
  }
  CHECK(source->current_bytes() == 0);
}
