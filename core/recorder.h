#pragma once
// Work that is done again and again with the same shapes. On a GPU it is some hundred small
// kernels, which the host could not start as fast as they end; so it is recorded when it comes up
// for the second time, and from then on started by one call.

#include <functional>
#include <memory>
#include <vector>

#include "core/context.h"

namespace xtrain {

class Recorder {
 public:
  // The queue of the context must outlive the recorder.
  explicit Recorder(const Context& ctx);

  // The given context, but with memory that stays where it is: recorded work must allocate from it.
  const Context& context() const { return of_work_; }
  // Where the queue records nothing (Queue::records) the work is done as it stands, with the same
  // results.
  bool records() const { return of_work_.queue->records(); }

  // Does the work of this kind, 0, 1, ...; its requirements are those of Queue::record_work, which
  // `work` of later calls is not called to meet. Works of several kinds must not leave anything in
  // the context's memory to each other.
  void run(size_t kind, const std::function<void()>& work);

 private:
  struct Kind {
    bool has_run = false;
    std::unique_ptr<RecordedWork> recorded;
  };
  std::shared_ptr<KeptAllocator> memory_;
  Context of_work_;
  std::vector<Kind> kinds_;
};

}  // namespace xtrain
