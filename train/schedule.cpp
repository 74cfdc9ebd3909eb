#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace xtrain {
namespace {

// Where `step` lies between `begin` (0) and `end` (1).
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return step >= end ? 1.0 : 0.0;
  const double share = static_cast<double>(step - begin) / static_cast<double>(end - begin);
  return std::clamp(share, 0.0, 1.0);
}

// The rate as a share of the peak.
double share_at(const TrainConfig& c, int64_t step) {
  const double low = c.min_lr_ratio;
  switch (c.lr_schedule) {
    case LrSchedule::constant:
      return 1.0;
    case LrSchedule::cosine: {
      const double x = progress(step, c.warmup_steps, c.decay_steps.value_or(c.max_steps));
      return low + (1.0 - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
    }
    case LrSchedule::linear:
      return 1.0 -
             (1.0 - low) * progress(step, c.warmup_steps, c.decay_steps.value_or(c.max_steps));
    case LrSchedule::wsd: {
      const int64_t falling = c.decay_steps.value_or(std::max<int64_t>(1, c.max_steps / 5));
      return 1.0 - (1.0 - low) * progress(step, c.max_steps - falling, c.max_steps);
    }
  }
  return 1.0;
}

}  // namespace

double learning_rate_at(const TrainConfig& c, int64_t step) {
  check(step >= 1, "learning rate: steps count from 1; got ", step);
  if (step < c.warmup_steps) {
    return c.learning_rate * static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  }
  return c.learning_rate * share_at(c, step);
}

}  // namespace xtrain
