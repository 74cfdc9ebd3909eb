#pragma once
// Hugging Face's config.json of GPT-2, Llama, Qwen2 and Qwen3 models.

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace xtrain {

struct HuggingFaceConfig {
  ModelConfig model;
  // Qwen3's config may leave head_dim out; what is meant then is 128, as transformers has it.
  bool head_dim_given = true;
  // Keys that are not known here. They are taken to be harmless; whoever shows them to the user
  // lets the user judge.
  std::vector<std::string> ignored_keys;
};

// Old and new spellings: rope_theta or rope_parameters, torch_dtype or dtype, names of GPT-2 or of
// the others. Throws InputError, beginning with `path`, for a key that changes the arithmetic in a
// way that is not implemented (with its value), for wrong types and sizes, and for what is missing.
HuggingFaceConfig read_hugging_face_config(std::string_view json, const std::string& path);

}  // namespace xtrain
