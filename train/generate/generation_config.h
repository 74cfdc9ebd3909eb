#pragma once
// What a model's folder says about how to generate: generation_config.json beside its weights.

#include <optional>
#include <string>

#include "train/generate/sampler.h"

namespace xtrain {

// What the file gives; the rest is none.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
};

// None where the folder has no such file. Keys of other things are passed over. InputError naming
// file and key for a value of a wrong type or out of range.
std::optional<GenerationConfig> read_generation_config(const std::string& folder);

// The options of a model without flags: those of the config, greedy unless do_sample is true, as
// Hugging Face has it; a top_k of 0 or none means all. The defaults of SamplingOptions where there
// is no config or it says nothing of sampling.
SamplingOptions sampling_options(const std::optional<GenerationConfig>& config);

}  // namespace xtrain
