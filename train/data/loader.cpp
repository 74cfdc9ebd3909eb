#include "train/data/loader.h"

#include <algorithm>

#include "core/copy.h"

namespace xtrain {

BatchLoader::BatchLoader(const Context& ctx, const ShuffledWindows& windows, int64_t first_sequence,
                         int64_t batch_size, int64_t stride)
    : windows_(windows), first_sequence_(first_sequence), batch_size_(batch_size), stride_(stride) {
  for (Slot& slot : slots_) {
    slot.tokens = host_tensor(ctx, {2, batch_size, windows.seq_len()}, Dtype::i32);
    slot.first_sequence = host_tensor(ctx, {1}, Dtype::i64);
  }
  thread_ = std::thread([this] { read_ahead(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// --- the thread ----------------------------------------------------------------------------------

void BatchLoader::read_ahead() {
  for (int64_t batch = 0;; ++batch) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || batch < freed_ + kSlots; });
      if (stopping_) return;
    }
    try {
      read_batch(batch);
    } catch (...) {
      slot_of(batch).failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      read_ = batch + 1;
    }
    changed_.notify_all();
    if (slot_of(batch).failure) return;
  }
}

void BatchLoader::read_batch(int64_t batch) {
  Slot& slot = slot_of(batch);
  const int64_t first = first_sequence_ + batch * stride_;
  const Batch windows = windows_.batch(first, batch_size_);
  int32_t* tokens = slot.tokens.mutable_data<int32_t>();
  std::copy(windows.inputs.begin(), windows.inputs.end(), tokens);
  std::copy(windows.targets.begin(), windows.targets.end(), tokens + windows.inputs.size());
  slot.first_sequence.mutable_data<int64_t>()[0] = first;
}

// --- the trainer's side --------------------------------------------------------------------------

void BatchLoader::upload_next(const Context& ctx, const Tensor& tokens,
                              const Tensor& first_sequence) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return read_ > uploaded_; });
  }
  Slot& slot = slot_of(uploaded_);
  if (slot.failure) std::rethrow_exception(slot.failure);
  upload(ctx, slot.tokens, tokens);
  upload(ctx, slot.first_sequence, first_sequence);
  slot.copied = ctx.queue->record();
  ++uploaded_;
  free_copied();
}

void BatchLoader::free_copied() {
  if (uploaded_ - freed_ <= kCopied) return;
  slot_of(freed_).copied->wait();
  {
    const std::lock_guard lock(mutex_);
    ++freed_;
  }
  changed_.notify_all();
}

}  // namespace xtrain
