#pragma once
// From one folder that holds a model to another. Every function writes OUT whole or not at all,
// tensor by tensor, so that a model may be larger than memory, and returns notes for the user. The
// same input gives the same bytes. InputError and Error name the file.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/hf/element_types.h"

namespace xtrain {

struct ConversionOptions {
  std::optional<ElementType> dtype;  // none: as in the source
  int64_t max_shard_bytes = 5'000'000'000;
  // Writes the rows of embedding and head that lie behind the vocabulary's tokens too.
  bool keep_padding = false;
  // Called before each piece of a tensor; may throw to end the conversion.
  std::function<void()> before_piece;
};

using Notes = std::vector<std::string>;

// A Hugging Face folder: config.json, generation_config.json, tensors, tokenizer files.
Notes export_model(const std::string& in, const std::string& out, const ConversionOptions& options);

// A folder in this project's layout: config.json, tensors under the names of the parameters,
// vocabulary.json.
Notes import_model(const std::string& in, const std::string& out, const ConversionOptions& options);

// The same layout: the tensors of any model, known here or not, in another dtype or cut into other
// shards, and the small files beside them.
Notes rewrite_model(const std::string& in, const std::string& out,
                    const ConversionOptions& options);

// What a model's folder or a safetensors file holds, as lines of text.
std::string describe_model(const std::string& path);

}  // namespace xtrain
