#pragma once
// The learning rate of each step.

#include <cstdint>

#include "train/run_config.h"

namespace xtrain {

// The rate of step 1, 2, ..., max_steps: rises along a line over warmup_steps, reaching the peak at
// step warmup_steps, then follows lr_schedule (see LrSchedule).
double learning_rate_at(const TrainConfig& config, int64_t step);

}  // namespace xtrain
