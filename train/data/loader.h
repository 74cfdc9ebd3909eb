#pragma once
// Batches of a run read ahead of their use by a thread of its own, so that neither files nor copies
// hold up a step.

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "core/queue.h"
#include "core/tensor.h"
#include "train/data/windows.h"

namespace xtrain {

class BatchLoader {
 public:
  // Batch n = 0, 1, ... is the windows' sequences first_sequence + n * stride and the following, in
  // all batch_size. The windows must outlive the loader.
  BatchLoader(const Context& ctx, const ShuffledWindows& windows, int64_t first_sequence,
              int64_t batch_size, int64_t stride);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Puts the next batch into tensors of the device, in the order of the context's queue:
  // tokens [2, batch_size, seq_len] i32, the inputs and then the targets, and first_sequence [1]
  // i64. Waits where it has not been read yet, and for the copy of the batch before the last, whose
  // place is read into again. Throws what reading the batch threw.
  void upload_next(const Context& ctx, const Tensor& tokens, const Tensor& first_sequence);

 private:
  static constexpr int64_t kSlots = 4;   // batches held in host memory,
  static constexpr int64_t kCopied = 2;  // of which so many may still be on their way

  struct Slot {
    Tensor tokens, first_sequence;
    std::exception_ptr failure;     // instead of the batch
    std::unique_ptr<Event> copied;  // behind the batch's copy
  };
  Slot& slot_of(int64_t batch) { return slots_[batch % kSlots]; }
  void read_ahead();
  void read_batch(int64_t batch);
  void free_copied();

  const ShuffledWindows& windows_;
  const int64_t first_sequence_, batch_size_, stride_;
  std::array<Slot, kSlots> slots_;

  std::mutex mutex_;  // of the rest: batches 0 .. freed - 1 are done with, those .. read - 1 wait
  std::condition_variable changed_;
  int64_t read_ = 0, freed_ = 0;
  bool stopping_ = false;

  int64_t uploaded_ = 0;
  std::thread thread_;  // last, since it uses the others
};

}  // namespace xtrain
