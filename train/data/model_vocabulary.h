#pragma once
// The vocabulary beside a model.

#include <cstdint>
#include <string>

#include "train/data/vocabulary.h"

namespace xtrain {

struct ModelVocabulary {
  Vocabulary vocabulary;
  std::string file;  // where it was found; "" when the folder has none and ids stand for themselves
};

// vocabulary.json of a checkpoint; tokenizer.json of a Hugging Face folder; or vocab.json and
// merges.txt with what config.json and tokenizer_config.json say, as older folders have it. Without
// any: plain ids below vocab_size, the model's. Throws InputError naming the file, and when the
// vocabulary has more tokens than vocab_size.
ModelVocabulary model_vocabulary(const std::string& folder, int64_t vocab_size);

}  // namespace xtrain
