#pragma once
// Training data for measurements, whose time and memory do not depend on what the tokens say.

#include "train/data/open_data.h"
#include "train/run_config.h"

namespace xtrain {

// Tokens drawn from the whole vocabulary of the run's model, the same every time; no validation
// data. InputError where model.vocab_size is left to the data.
Data random_tokens(const RunConfig& run);

// A run that neither continues another, nor starts from a model's weights, nor finds files of one
// in its folder, which is nowhere.
void forget_files(TrainConfig& config);

}  // namespace xtrain
