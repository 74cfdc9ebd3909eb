#include "tools/train_log.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>

#include "core/error.h"
#include "model/model_folder.h"
#include "tools/device.h"
#include "tools/progress_line.h"

namespace xtrain {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  if (std::isnan(value)) value = std::fabs(value);  // its sign says nothing
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

std::optional<double> entropy_floor(const Trainer& trainer) {
  const auto& validation = trainer.data().validation;
  return validation ? validation->entropy_floor() : std::nullopt;
}

}  // namespace

TrainLog::TrainLog(std::ostream& out, const Trainer& trainer)
    : out_(out),
      max_steps_(trainer.config().train.max_steps),
      log_interval_(trainer.config().train.log_interval),
      first_step_(trainer.state().step),
      floor_(entropy_floor(trainer)),
      terminal_(&out == &std::cout && isatty(STDOUT_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

TrainLog::~TrainLog() {
  if (live_) out_ << std::endl;
}

void TrainLog::on_step(const StepReport& report) {
  if (report.val_loss) val_loss_ = report.val_loss;
  if (report.skipped) {
    print_lasting("step " + std::to_string(report.step) +
                  ": the gradient is not finite; weights left as they were");
  }
  const bool lasting = report.val_loss.has_value() || report.step == max_steps_;
  if (terminal_) {
    if (lasting) {
      print_lasting(line(report));
    } else {
      print_live(line(report));
    }
  } else if (lasting || report.step == first_step_ + 1 || report.step % log_interval_ == 0) {
    out_ << line(report) << std::endl;
  }
}

void TrainLog::on_checkpoint(const std::string& path) {
  print_lasting("saved " + path);
}

void TrainLog::print_lasting(const std::string& text) {
  out_ << (terminal_ ? "\r\033[K" : "") << text << std::endl;
  live_ = false;
}

// A line that wraps could not be replaced by the next one, and many a second could not be read.
void TrainLog::print_live(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (live_ && now - live_since_ < std::chrono::milliseconds(50)) return;
  out_ << "\r\033[K" << text.substr(0, terminal_width(STDOUT_FILENO) - 1) << std::flush;
  live_ = true;
  live_since_ = now;
}

std::string TrainLog::line(const StepReport& r) const {
  std::string text = "step " + std::to_string(r.step) + "/" + std::to_string(max_steps_);
  text += format("  loss %.4f", r.loss);
  if (val_loss_) text += format("  val %.4f", *val_loss_);
  if (floor_) text += format("  floor %.4f", *floor_);
  text += format("  lr %.2e", r.learning_rate) + format("  norm %.3f", r.grad_norm);
  return text + format("  %.0f tokens/s", r.tokens_per_s) + "  " + remaining(r.step);
}

std::string TrainLog::remaining(int64_t step) const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  if (step == max_steps_) return "took " + duration_text(passed.count());
  const double per_step = passed.count() / static_cast<double>(step - first_step_);
  return "left " + duration_text(per_step * static_cast<double>(max_steps_ - step));
}

void print_start(std::ostream& out, const Trainer& trainer, const Context& ctx) {
  const RunConfig& run = trainer.config();
  out << run_config_to_json(run) << "\n"
      << parameter_count(run.model) << " parameters, " << run.train.exec.dtype << " on "
      << device_text(ctx.device) << " with " << ctx.threads << " threads\n"
      << "training data: " << trainer.data().train->reader() << ", " << trainer.data().train->size()
      << " tokens\n";
  if (const auto& validation = trainer.data().validation) {
    out << "validation data: " << validation->reader() << ", " << validation->size() << " tokens\n";
  }
  if (!run.train.init.empty()) {
    for (const std::string& note : ModelFolder(run.train.init).notes()) {
      out << "note: " << note << "\n";
    }
  }
  if (!trainer.resumed_from().empty()) {
    out << "continuing from " << trainer.resumed_from() << " at step " << trainer.state().step
        << "\n";
  }
  out << std::flush;
}

void print_end(std::ostream& out, const Trainer& trainer, const Context& ctx,
               const std::string& weights) {
  if (const auto& best = trainer.best_validation()) {
    out << "best validation loss " << format("%.4f", best->loss) << " at step " << best->step
        << "\n";
  }
  out << "weights " << weights << ", peak memory " << ctx.allocator->peak_bytes() / (1 << 20)
      << " MiB\n"
      << std::flush;
}

void print_samples(std::ostream& out, Trainer& trainer) {
  int number = 0;
  for (const std::string& text : trainer.samples()) {
    out << "--- sample " << ++number << "\n" << text << "\n";
  }
  out << std::flush;
}

}  // namespace xtrain
