#pragma once
// A line on standard error that says how far an evaluation is.

#include <chrono>
#include <cstdint>
#include <string>

namespace xtrain {

class EvalLine {
 public:
  explicit EvalLine(std::string what);  // what is counted: "tokens"
  ~EvalLine();                          // takes the line away from a terminal
  EvalLine(const EvalLine&) = delete;
  EvalLine& operator=(const EvalLine&) = delete;

  // On a terminal one line that changes, elsewhere a line every ten seconds.
  void show(int64_t done, int64_t all);

 private:
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace xtrain
