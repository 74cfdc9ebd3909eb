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

// As tokenizer_file.h finds it; plain ids below vocab_size, the model's, where there is none.
// Throws InputError naming the file, and when the vocabulary has more tokens than vocab_size.
ModelVocabulary model_vocabulary(const std::string& folder, int64_t vocab_size);

}  // namespace xtrain
