#pragma once
// The training loop: steps, validation, checkpoints, samples. What happens is told to an observer;
// nothing is printed here.

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/context.h"
#include "core/recorder.h"
#include "model/tiny_transformer.h"
#include "train/adamw/adamw.h"
#include "train/checkpoint.h"
#include "train/data/loader.h"
#include "train/data/open_data.h"
#include "train/data/windows.h"
#include "train/metrics.h"
#include "train/replica.h"
#include "train/run_config.h"

namespace xtrain {

// One optimizer step, or the state after it.
struct StepReport {
  int64_t step = 0;    // counts from 1
  int64_t tokens = 0;  // losses counted since the start of training
  double loss = 0.0;   // mean of the step, nats per token
  std::optional<double> val_loss;
  double learning_rate = 0.0;
  double grad_norm = 0.0;  // before clipping
  bool skipped = false;    // the gradient was not finite; weights and moments are as before
  // Forward, backward and update. Where steps follow each other without a pause: the time from the
  // end of the step before to the end of this one.
  double step_ms = 0.0;
  double tokens_per_s = 0.0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const StepReport&) {}
  virtual void on_checkpoint(const std::string& /*path*/) {}
};

class Trainer {
 public:
  // `run` must be resolved. Opens the data, builds the model and, as train.resume says, continues
  // or starts: from the weights of train.init where that is given, else from random ones. Nothing
  // is written yet. The replica must outlive the trainer.
  Trainer(const Context& ctx, RunConfig run, Replica& replica);
  // The same on other data than the run names. model.vocab_size 0 becomes that of its vocabulary.
  Trainer(const Context& ctx, RunConfig run, Data data, Replica& replica);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains up to max_steps, or until `stop` is set on any replica: then all end after the same
  // step, the one under way or one of the next two, and save a checkpoint. Replica 0 writes
  // config.json, metrics.jsonl and checkpoints/ under train.out_dir. On a GPU a step is reported
  // when the next one is already on its way, so that the GPU never waits for the host.
  void run(TrainObserver& observer, const std::atomic<bool>& stop);

  // One optimizer step; val_loss is left open. A step whose gradient is not finite changes nothing;
  // Error when there are many in a row.
  StepReport train_step();
  // So many of them, one behind the other as in run(); nothing is validated or saved.
  void take_steps(int64_t count, TrainObserver& observer);
  // Mean loss over the validation tokens, the first eval_steps batches of every replica; over all
  // of them when there are fewer or eval_steps is 0. Leaves training as it was. None when there is
  // no validation data, or all of it is masked. To be called on all replicas, which share the work.
  std::optional<double> validation_loss();
  // num_samples texts that continue the prompt.
  std::vector<std::string> samples();
  // Returns the checkpoint's folder. To be called on all replicas; the first one writes.
  std::string save();

  const RunConfig& config() const { return run_; }
  const TrainingState& state() const { return state_; }
  const Data& data() const { return data_; }
  TinyTransformer& model() { return *model_; }
  std::string weights_checksum();                                    // to be called on all replicas
  const std::string& resumed_from() const { return resumed_from_; }  // "" for a fresh run
  // The least validation loss that metrics.jsonl holds, after run().
  const std::optional<BestValidation>& best_validation() const { return best_validation_; }

 private:
  // A step that the device has been given: what went there for it and comes back, in host memory.
  struct StepUnderWay {
    int64_t step = 0;
    double learning_rate = 0.0;
    std::chrono::steady_clock::time_point start;
    Tensor random_step;  // [1] i64
    Tensor scalars;      // [3] f64, see AdamW::step_scalars
    Tensor stop;         // [1] f64: whether this replica is to stop
    Tensor totals;       // [4] f64
    Tensor scale;        // [4] f64, a GradScale
    std::unique_ptr<Event> done;
  };
  void allocate_step_memory();
  StepUnderWay& begin_step(const std::atomic<bool>& stop);
  StepReport finish_step(const StepUnderWay& step);
  void run_micro_step(bool first, bool last);
  void add_gradients(const Context& ctx, bool first, bool last);
  void update(const Context& ctx);
  void sum_squares(const Context& ctx);
  void await_values();
  void resume_or_refuse();
  void load_initial_weights();
  void check_same_start();
  void check_out_dir_unused() const;
  void check_model_of(const std::string& checkpoint) const;
  void check_vocabulary_of(const std::string& checkpoint) const;
  std::string checkpoint_folder() const;
  bool due(int64_t interval) const;
  bool writes() const { return replica_.rank() == 0; }
  std::vector<int32_t> default_prompt() const;

  Context ctx_;
  RunConfig run_;
  Replica& replica_;
  Data data_;
  std::vector<int32_t> prompt_;
  std::optional<ShuffledWindows> train_windows_;
  std::optional<ConsecutiveWindows> val_windows_;
  std::optional<TinyTransformer> model_;
  std::optional<AdamW> optimizer_;
  TrainingState state_;
  int64_t micro_steps_ = 1;
  int64_t skipped_in_a_row_ = 0;
  std::string resumed_from_;
  std::optional<BestValidation> best_validation_;

  // The host looks at a step while the device works on the next.
  std::array<StepUnderWay, 2> under_way_;
  std::chrono::steady_clock::time_point last_finish_;
  // What every step reads and writes, in the same places of device memory.
  Tensor tokens_;   // [2, B, T] i32: inputs and targets of a micro-step
  Tensor random_;   // [2] i64: step and first sequence; the random key of ctx_ points here
  Tensor scalars_;  // [3] f64, see AdamW::step_scalars
  Tensor totals_;   // [4] f64: sums over all replicas, see trainer.cpp
  Tensor scale_;    // [4] f64, a GradScale
  std::optional<BatchLoader> loader_;
  std::optional<Recorder> recorder_;  // none: every step is put together anew
};

}  // namespace xtrain
