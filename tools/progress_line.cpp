#include "tools/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <utility>

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

std::string bar(double share) {
  constexpr int kCells = 20;
  const int full = std::clamp(static_cast<int>(share * kCells), 0, kCells);
  return '[' + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kCells - full), '.') + ']';
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  return s < 3600 ? format("%lld:%02lld", s / 60, s % 60)
                  : format("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

size_t terminal_width(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

ProgressLine::ProgressLine(std::string unit, double unit_size)
    : unit_(std::move(unit)),
      unit_size_(unit_size),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(start_) {}

ProgressLine::~ProgressLine() {
  if (live_) std::cerr << std::endl;
}

double ProgressLine::seconds() const {
  return seconds_between(start_, Clock::now());
}

std::string ProgressLine::line(int64_t done, int64_t total, double per_second,
                               const std::string& more) const {
  const auto in_units = [&](double count) {
    return format("%.*f", unit_size_ > 1 ? 1 : 0, count / unit_size_);
  };
  std::string text = in_units(static_cast<double>(done));
  if (total > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    text = bar(share) + format(" %3.0f %%  ", 100 * share) + text + " of " +
           in_units(static_cast<double>(total));
  }
  text += ' ' + unit_ + "  " + in_units(per_second) + ' ' + unit_ + "/s";
  if (!more.empty()) text += "  " + more;
  if (total > 0 && per_second > 0) {
    text += "  left " + duration_text(static_cast<double>(total - done) / per_second);
  }
  return text;
}

void ProgressLine::show(int64_t done, int64_t total, const std::string& more) {
  const auto now = Clock::now();
  if (!first_) first_ = {done, now};
  const auto pause = std::chrono::milliseconds(terminal_ ? 100 : 5000);
  if (now - shown_ < pause) return;
  shown_ = now;
  const double seconds = std::max(seconds_between(first_->when, now), 1e-9);
  const std::string text =
      line(done, total, static_cast<double>(done - first_->done) / seconds, more);
  if (terminal_) {
    std::cerr << "\r\033[K" << text.substr(0, terminal_width(STDERR_FILENO) - 1) << std::flush;
    live_ = true;
  } else {
    std::cerr << text << std::endl;
  }
}

}  // namespace xtrain
