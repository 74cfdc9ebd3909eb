#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/small_run.h"

using namespace xtrain;

namespace {

// What the host asked of a queue.
struct Traffic {
  int64_t copies_in = 0, copies_out = 0, waits = 0, synchronizations = 0;
  bool operator==(const Traffic&) const = default;
};

class CountingEvent final : public Event {
 public:
  CountingEvent(std::unique_ptr<Event> event, Traffic& traffic)
      : event_(std::move(event)), traffic_(traffic) {}
  void wait() override {
    ++traffic_.waits;
    event_->wait();
  }

 private:
  std::unique_ptr<Event> event_;
  Traffic& traffic_;
};

class CountingQueue final : public Queue {
 public:
  explicit CountingQueue(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  void copy_in(const void* host, void* device, int64_t bytes) override {
    ++traffic.copies_in;
    queue_->copy_in(host, device, bytes);
  }
  void copy_out(const void* device, void* host, int64_t bytes) override {
    ++traffic.copies_out;
    queue_->copy_out(device, host, bytes);
  }
  std::unique_ptr<Event> record() override {
    return std::make_unique<CountingEvent>(queue_->record(), traffic);
  }
  void synchronize() override {
    ++traffic.synchronizations;
    queue_->synchronize();
  }

  Traffic traffic;

 private:
  std::shared_ptr<Queue> queue_;
};

}  // namespace

TEST_CASE("a step waits for its report alone, and copies no more than batches and scalars",
          "[train]") {
  const TemporaryFolder folder;
  for (const char* recompute : {"none", "block"}) {
    for (const char* attention : {"composed", "flash"}) {
      for (int64_t micro_steps : {1, 3}) {
        INFO(recompute << ", " << attention << ", " << micro_steps << " micro-steps");
        const RunConfig run = small_run(
            folder.path.string(), {"model.dropout=0.1", std::string("train.attention=") + attention,
                                   std::string("train.recompute=") + recompute,
                                   "train.grad_accum_steps=" + std::to_string(micro_steps)});
        Context ctx = cpu_context(1);
        const auto queue = std::make_shared<CountingQueue>(ctx.queue);
        ctx.queue = queue;
        Replica alone;
        Trainer trainer(ctx, run, alone);
        for (int i = 0; i < 3; ++i) trainer.train_step();  // fills the loader's ring
        queue->traffic = Traffic{};
        trainer.train_step();
        Traffic expected;
        // Step, scalars and whether to stop; tokens and first sequence of every batch.
        expected.copies_in = 3 + 2 * micro_steps;
        expected.copies_out = 2;  // sums of the step, scale of the gradient
        // For the report, and for copies of batches before the last, whose memory is used again.
        expected.waits = 1 + micro_steps;
        CHECK(queue->traffic == expected);
      }
    }
  }
}
