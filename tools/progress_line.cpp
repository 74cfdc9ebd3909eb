#include "tools/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMegabyte = 1e6;

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

size_t terminal_width() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  return s < 3600 ? format("%lld:%02lld", s / 60, s % 60)
                  : format("%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), shown_(start_) {}

ProgressLine::~ProgressLine() {
  if (live_) std::cerr << std::endl;
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void ProgressLine::show(int64_t bytes, int64_t total, const std::string& more) {
  const auto now = Clock::now();
  if (done_ < 0) done_ = bytes;
  if (now - shown_ <
      (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000))) {
    return;
  }
  shown_ = now;
  const double rate = static_cast<double>(bytes - done_) / std::max(seconds(), 1e-9);
  std::string line = format("%.1f", static_cast<double>(bytes) / kMegabyte);
  if (total > 0) {
    const double share = static_cast<double>(bytes) / static_cast<double>(total);
    line = bar(share) + format(" %3.0f %%  ", 100 * share) + line +
           format(" of %.1f", static_cast<double>(total) / kMegabyte);
  }
  line += format(" MB  %.1f MB/s  ", rate / kMegabyte) + more;
  if (total > 0 && rate > 0) {
    line += "  left " + duration_text(static_cast<double>(total - bytes) / rate);
  }
  if (terminal_) {
    std::cerr << "\r\033[K" << line.substr(0, terminal_width() - 1) << std::flush;
    live_ = true;
  } else {
    std::cerr << line << std::endl;
  }
}

}  // namespace xtrain
