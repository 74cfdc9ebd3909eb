#pragma once
// What the keys of Hugging Face's config.json mean for the models that are known here.

#include <string>

#include "model/config.h"

namespace xtrain {

// Keys that are those of the section "model" of a run's config, under the same names.
bool is_model_key(ModelType type, const std::string& key);

// Model keys that may be null instead of left out.
bool may_be_null(const std::string& key);

// Keys that say nothing about the arithmetic of a model's logits, or are read apart.
bool is_harmless_key(ModelType type, const std::string& key);

// Of a key that would change the arithmetic: the value, as JSON, with which it does not; null never
// does. A null pointer for any other key.
const char* neutral_value(const std::string& key);

}  // namespace xtrain
