#pragma once
// How far a program has come: a line that is rewritten on a terminal, else a line every few
// seconds.

#include <chrono>
#include <cstdint>
#include <string>

namespace xtrain {

std::string duration_text(double seconds);  // 1:02, or 1:02:03

class ProgressLine {
 public:
  ProgressLine();   // begins the clock
  ~ProgressLine();  // ends the line

  // `bytes` of `total`, which is below 0 where it is not known; `more` stands behind the speed.
  // What the first call says to be done already counts for no speed.
  void show(int64_t bytes, int64_t total, const std::string& more);

  double seconds() const;

 private:
  bool terminal_;
  bool live_ = false;
  int64_t done_ = -1;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace xtrain
