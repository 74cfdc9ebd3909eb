#include "tools/eval_progress.h"

#include <unistd.h>

#include <cmath>
#include <iostream>
#include <utility>

#include "core/error.h"

namespace xtrain {

EvalLine::EvalLine(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

EvalLine::~EvalLine() {
  if (terminal_ && shown_) std::cerr << "\r\033[K" << std::flush;
}

void EvalLine::show(int64_t done, int64_t all) {
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000);
  if (now - last_ < pause) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double per_second = static_cast<double>(done) / seconds;
  const double left = static_cast<double>(all - done) / std::fmax(per_second, 1e-9);
  std::cerr << (terminal_ ? "\r\033[K" : "")
            << text("evaluate: ", done, " of ", all, " ", what_, ", ", std::llround(per_second),
                    "/s, left ", std::llround(left), " s")
            << (terminal_ ? "" : "\n") << std::flush;
}

}  // namespace xtrain
