#include "core/recorder.h"

namespace xtrain {

Recorder::Recorder(const Context& ctx)
    : memory_(std::make_shared<KeptAllocator>(ctx.allocator)), of_work_(ctx) {
  of_work_.allocator = memory_;
}

void Recorder::run(size_t kind, const std::function<void()>& work) {
  if (kind >= kinds_.size()) kinds_.resize(kind + 1);
  Kind& k = kinds_[kind];
  if (!k.has_run || !records()) {
    work();
    k.has_run = true;
    return;
  }
  if (!k.recorded) {
    memory_->close();
    k.recorded = of_work_.queue->record_work(work);
    memory_->open();
  }
  k.recorded->run();
}

}  // namespace xtrain
