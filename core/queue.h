#pragma once
// The order of a device's work. Kernels and copies of a context run one behind the other in its
// queue; on a GPU the host goes on at once and waits only where it asks to.

#include <cstdint>
#include <memory>

namespace xtrain {

// A point of a queue, which must outlive it.
class Event {
 public:
  virtual ~Event() = default;
  // Returns when all work before the point is done. Errors as Queue::synchronize.
  virtual void wait() = 0;
};

class Queue {
 public:
  virtual ~Queue() = default;

  // Raw bytes between host and device memory, in order with the kernels. `host` may be reused after
  // copy_in once the copy has been waited for when it is pinned, at once when it is not; what
  // copy_out brings may be read once it has been waited for.
  virtual void copy_in(const void* host, void* device, int64_t bytes) = 0;
  virtual void copy_out(const void* device, void* host, int64_t bytes) = 0;

  virtual std::unique_ptr<Event> record() = 0;
  // Returns when all work is done. Error for a fault that a kernel has met since the last call,
  // such as an index out of range: kernels of a GPU cannot throw where they run.
  virtual void synchronize() = 0;
};

// The CPU's: work is done when the call returns.
std::shared_ptr<Queue> cpu_queue();

}  // namespace xtrain
