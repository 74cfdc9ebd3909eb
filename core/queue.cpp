#include "core/queue.h"

#include "core/error.h"

namespace xtrain {

std::unique_ptr<RecordedWork> Queue::record_work(const std::function<void()>&) {
  fail("queue: only a GPU whose launches are not waited for records work");
}

}  // namespace xtrain
