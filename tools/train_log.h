#pragma once
// What a person sees of a run: on a terminal one line that is kept up to date, and a lasting line
// at each validation; elsewhere a plain line every log_interval steps.

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace xtrain {

class TrainLog final : public TrainObserver {
 public:
  // Of the steps that the trainer is going to take.
  TrainLog(std::ostream& out, const Trainer& trainer);
  ~TrainLog() override;  // what is printed next begins a line of its own

  void on_step(const StepReport& report) override;
  void on_checkpoint(const std::string& path) override;

 private:
  std::string line(const StepReport& report) const;
  std::string remaining(int64_t step) const;
  void print_lasting(const std::string& text);
  void print_live(const std::string& text);

  std::ostream& out_;
  const int64_t max_steps_, log_interval_, first_step_;
  const std::optional<double> floor_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::optional<double> val_loss_;  // the latest
  bool live_ = false;               // the cursor stands behind a live line
  std::chrono::steady_clock::time_point live_since_;
};

// The resolved config, the model's size, the device, the data, and where the run goes on from.
void print_start(std::ostream& out, const Trainer& trainer, const Context& ctx);

// The best validation loss, the weights' checksum, the memory.
void print_end(std::ostream& out, const Trainer& trainer, const Context& ctx,
               const std::string& weights);

void print_samples(std::ostream& out, Trainer& trainer);

}  // namespace xtrain
