#pragma once
// Where a training program computes.

#include "core/context.h"
#include "train/run_config.h"

namespace xtrain {

// Whether train.device means a GPU here. InputError where it asks for one that is not there.
bool wants_gpu(const TrainConfig& config);

// What train.device, train.threads and train.gemm say, on the GPU of that index where there is
// one. On a CPU the threads are bound to the cores. InputError naming the key.
Context train_context(const TrainConfig& config, int gpu = 0);

}  // namespace xtrain
