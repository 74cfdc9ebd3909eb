#pragma once
// Where a training program computes.

#include "core/context.h"
#include "train/run_config.h"

namespace xtrain {

// Whether train.device means a GPU here. InputError where it asks for one that is not there.
bool wants_gpu(const TrainConfig& config);

// What train.device, train.threads, train.gemm and train.gemm_choices say, on the GPU of that index
// where there is one. On a CPU the threads are bound to the cores. InputError naming the key.
Context train_context(const TrainConfig& config, int gpu = 0);
// The same for one of several processes, all of which must take the same choices: they are read
// and not added to.
Context rank_context(const TrainConfig& config, int gpu);

}  // namespace xtrain
