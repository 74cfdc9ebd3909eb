#pragma once
// How far a program has come: a line on standard error that is rewritten on a terminal, else a line
// every few seconds.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace xtrain {

std::string duration_text(double seconds);  // 1:02, or 1:02:03

// Columns of the terminal behind the descriptor; 80 where it does not say.
size_t terminal_width(int descriptor);

class ProgressLine {
 public:
  // Begins the clock. `unit` is the name of so many of what is counted: ("MB", 1e6), ("tokens", 1).
  explicit ProgressLine(std::string unit, double unit_size = 1);
  ~ProgressLine();  // ends the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `done` of `total`, which is below 0 where it is not known; `more` stands behind the speed,
  // which is that since the first call.
  void show(int64_t done, int64_t total, const std::string& more = "");

  double seconds() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Beginning {
    int64_t done;
    Time when;
  };

  std::string line(int64_t done, int64_t total, double per_second, const std::string& more) const;

  std::string unit_;
  double unit_size_;
  bool terminal_;
  bool live_ = false;
  Time start_, shown_;
  std::optional<Beginning> first_;  // what the first call said
};

}  // namespace xtrain
