#pragma once
// Device memory with a count of what is in use. Memory is not initialised. Threads may share an
// allocator: kernels of the CPU take scratch memory in theirs.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace xtrain {

// Every block starts at a multiple of this: a cache line, and the widest vector load of any device.
inline constexpr int64_t kAllocationAlignment = 256;

class Allocator {
 public:
  virtual ~Allocator() = default;

  void* allocate(int64_t bytes);  // null for 0 bytes; Error with the sizes when memory runs out
  void free(void* block, int64_t bytes);  // `bytes` as allocated

  int64_t current_bytes() const { return current_; }  // in use, as asked for
  int64_t peak_bytes() const { return peak_; }        // largest current_bytes since reset_peak
  void reset_peak() { peak_ = current_.load(); }

 protected:
  virtual void* take_block(int64_t bytes) = 0;  // null when memory runs out
  virtual void return_block(void* block, int64_t bytes) = 0;

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
};

// Host memory. Freed blocks are kept by size and handed out again, since a training step asks for
// the same sizes over and over and fresh pages cost more than the work done on them. With `cache`
// false every block goes back to the system at once, so that a sanitizer sees overruns.
class CpuAllocator : public Allocator {
 public:
  explicit CpuAllocator(bool cache = true) : cache_(cache) {}
  ~CpuAllocator() override;

 protected:
  // From the system and back to it; a test counts here what is held.
  virtual void* system_block(int64_t size);  // null when memory runs out
  virtual void release_block(void* block, int64_t size);

 private:
  void* take_block(int64_t bytes) override;
  void return_block(void* block, int64_t bytes) override;
  void release_cached();

  const bool cache_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> cached_;  // by block size
  int64_t cached_bytes_ = 0;
};

// Blocks of another allocator that stay here until this one ends, so that work which was recorded
// (Queue::record_work) finds its memory as it was. Freed blocks are handed out again by their size,
// the last one first: work that asks for the same sizes in the same order gets the same blocks.
class KeptAllocator final : public Allocator {
 public:
  explicit KeptAllocator(std::shared_ptr<Allocator> source) : source_(std::move(source)) {}
  ~KeptAllocator() override;

  // Until it is opened again there are only the blocks that were asked for before; asking for more
  // is an Error.
  // Not for work of several threads, which may hold more at a time than in the run before.
  void close() { closed_ = true; }
  void open() { closed_ = false; }

 private:
  struct Block {
    void* address;
    int64_t bytes;
  };
  void* take_block(int64_t bytes) override;
  void return_block(void* block, int64_t bytes) override;

  const std::shared_ptr<Allocator> source_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> free_;  // by size
  std::vector<Block> blocks_;
  bool closed_ = false;
};

}  // namespace xtrain
