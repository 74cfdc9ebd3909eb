#pragma once
// Three stages at work at once: one thread produces items, several work on them, and the caller
// consumes them in the order in which they were produced, so that the result does not depend on the
// number of threads. So many items exist as keep the threads busy, and they are used again: memory
// does not grow with the length of the stream.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace xtrain {

template <class Item>
class OrderedPipeline {
 public:
  explicit OrderedPipeline(int threads)
      : threads_(threads), slots_(2 * static_cast<size_t>(threads) + 2) {}

  // produce(item) fills an item that may hold what was there before, and returns false at the end
  // of the stream. work(item, t) runs in thread t of 0..threads-1. consume(item) runs in the
  // calling thread and returns false to stop early. What a stage throws is thrown from here once
  // all items before have been consumed; no thread is left behind.
  template <class Produce, class Work, class Consume>
  void run(Produce&& produce, Work&& work, Consume&& consume) {
    std::vector<std::jthread> threads;
    const Crew crew(*this);  // ends before the threads are waited for
    threads.emplace_back([&] { produce_all(produce); });
    for (int t = 0; t < threads_; ++t) {
      threads.emplace_back([this, &work, t] { work_all(work, t); });
    }
    while (Slot* const slot = wait_for_next()) {
      if (slot->failure) std::rethrow_exception(slot->failure);
      if (!consume(slot->item)) return;
      release();
    }
  }

 private:
  struct Slot {
    Item item;
    bool done = false;
    std::exception_ptr failure;
  };

  // Tells the threads to end when the scope does, however that comes about.
  struct Crew {
    explicit Crew(OrderedPipeline& owner) : pipeline(owner) {}
    ~Crew() { pipeline.stop(); }
    OrderedPipeline& pipeline;
  };

  Slot& slot_of(uint64_t number) { return slots_[number % slots_.size()]; }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_all();
    filled_.notify_all();
  }

  template <class Produce>
  void produce_all(Produce& produce) {
    for (bool more = true; more;) {
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stopped_ || produced_ - consumed_ < slots_.size(); });
        if (stopped_) return;
      }
      Slot& slot = slot_of(produced_);
      try {
        more = produce(slot.item);
      } catch (...) {
        slot.failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      ended_ = !more || slot.failure;
      more = !ended_;
      if (slot.failure || more) ++produced_;
      if (ended_) {
        filled_.notify_all();
        done_.notify_one();
      } else {
        filled_.notify_one();
      }
    }
  }

  template <class Work>
  void work_all(Work& work, int thread) {
    for (;;) {
      uint64_t number;
      {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [&] { return stopped_ || ended_ || taken_ < produced_; });
        if (stopped_ || taken_ == produced_) return;
        number = taken_++;
      }
      Slot& slot = slot_of(number);
      try {
        if (!slot.failure) work(slot.item, thread);
      } catch (...) {
        slot.failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      slot.done = true;
      done_.notify_one();
    }
  }

  // The next item in order; null at the end of the stream.
  Slot* wait_for_next() {
    std::unique_lock lock(mutex_);
    Slot& next = slot_of(consumed_);
    done_.wait(lock, [&] { return next.done || (ended_ && consumed_ == produced_); });
    return next.done ? &next : nullptr;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    slot_of(consumed_).done = false;
    ++consumed_;
    room_.notify_one();
  }

  const int threads_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable room_, filled_, done_;
  uint64_t produced_ = 0, taken_ = 0, consumed_ = 0;  // numbers of items so far
  bool ended_ = false, stopped_ = false;
};

}  // namespace xtrain
