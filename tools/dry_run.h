#pragma once
// What a run would take, found without doing it. No files are written.

#include <iosfwd>

#include "train/run_config.h"

namespace xtrain {

struct RunSize {
  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  int64_t state_bytes = 0;  // weights, gradients, masters and moments
  int64_t peak_bytes = 0;   // of the device: the largest sum of tensors that live at one time
};

// Of the run in one process on `device`, which need not be there. The vocabulary's size must be
// known. A training step is gone through with memory that is counted and not touched; what kernels
// take by themselves while they run is not in it.
RunSize size_of_run(RunConfig run, Device device);

// Prints them as `train --dry-run` does, on the device that the config names. Opens the data only
// to learn the size of its vocabulary where the config leaves that to it.
void print_run_size(std::ostream& out, RunConfig run);

}  // namespace xtrain
