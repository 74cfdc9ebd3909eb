#pragma once
// The order of a device's work. Kernels and copies of a context run one behind the other in its
// queue; on a GPU the host goes on at once and waits only where it asks to.

#include <cstdint>
#include <functional>
#include <memory>

namespace xtrain {

// A point of a queue, which must outlive it.
class Event {
 public:
  virtual ~Event() = default;
  // Returns when all work before the point is done. Errors as Queue::synchronize.
  virtual void wait() = 0;
};

// Work that was recorded once and can be run any number of times.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void run() = 0;
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

  // Takes down what `work` puts into the queue, without running it; a GPU then starts it all by one
  // call of the host. Numbers that the host passes by value stay as they are, and so does memory:
  // work allocates from a KeptAllocator that it has run with before. It must not wait for the
  // device, nor copy from or to the host. The queue must outlive the result. Error where the queue
  // does not record.
  virtual std::unique_ptr<RecordedWork> record_work(const std::function<void()>& work);
  // Whether it can: a GPU's does, unless its launches are waited for.
  virtual bool records() const { return false; }

  // Returns when all work is done. Error for a fault that a kernel has met since the last call,
  // such as an index out of range: kernels of a GPU cannot throw where they run.
  virtual void synchronize() = 0;
};

// The CPU's: work is done when the call returns.
std::shared_ptr<Queue> cpu_queue();

}  // namespace xtrain
