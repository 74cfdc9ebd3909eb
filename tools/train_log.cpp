#include "tools/train_log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>

namespace xtrain {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  if (std::isnan(value)) value = std::fabs(value);  // its sign says nothing
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

std::string duration(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[64];
  if (s < 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  }
  return text;
}

// Columns of the terminal, or a usual number of them where it does not say.
size_t terminal_width() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

TrainLog::TrainLog(const TrainConfig& config, std::optional<double> floor, int64_t first_step)
    : max_steps_(config.max_steps),
      log_interval_(config.log_interval),
      first_step_(first_step),
      floor_(floor),
      terminal_(isatty(STDOUT_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

TrainLog::~TrainLog() {
  if (live_) std::cout << std::endl;
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
    std::cout << line(report) << std::endl;
  }
}

void TrainLog::on_checkpoint(const std::string& path) {
  print_lasting("saved " + path);
}

void TrainLog::print_lasting(const std::string& text) {
  std::cout << (terminal_ ? "\r\033[K" : "") << text << std::endl;
  live_ = false;
}

// A line that wraps could not be replaced by the next one, and many a second could not be read.
void TrainLog::print_live(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (live_ && now - live_since_ < std::chrono::milliseconds(50)) return;
  std::cout << "\r\033[K" << text.substr(0, terminal_width() - 1) << std::flush;
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
  if (step == max_steps_) return "took " + duration(passed.count());
  const double per_step = passed.count() / static_cast<double>(step - first_step_);
  return "left " + duration(per_step * static_cast<double>(max_steps_ - step));
}

}  // namespace xtrain
