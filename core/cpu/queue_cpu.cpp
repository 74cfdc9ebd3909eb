#include <cstring>
#include <utility>

#include "core/queue.h"

namespace xtrain {
namespace {

class PastEvent final : public Event {
 public:
  void wait() override {}
};

class CpuQueue final : public Queue {
 public:
  void copy_in(const void* host, void* device, int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void copy_out(const void* device, void* host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  std::unique_ptr<Event> record() override { return std::make_unique<PastEvent>(); }
  void synchronize() override {}
};

class RepeatedWork final : public RecordedWork {
 public:
  explicit RepeatedWork(std::function<void()> work) : work_(std::move(work)) {}
  void run() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace

std::unique_ptr<RecordedWork> Queue::record_work(std::function<void()> work) {
  return std::make_unique<RepeatedWork>(std::move(work));
}

std::shared_ptr<Queue> cpu_queue() {
  return std::make_shared<CpuQueue>();
}

}  // namespace xtrain
