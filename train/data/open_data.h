#pragma once
// From the `data` section of a configuration to token sources.

#include <cstdint>
#include <memory>

#include "train/data/data_config.h"
#include "train/data/token_source.h"
#include "train/data/vocabulary.h"

namespace xtrain {

struct Data {
  std::shared_ptr<const TokenSource> train;
  std::shared_ptr<const TokenSource> validation;  // null: none
  std::shared_ptr<const Vocabulary> vocabulary;
};

// `vocab_size` is the model's, or 0 to take that of the data; token files need it unless there is a
// vocab_file or the model brings a vocabulary, `of_model`, which text is then read with. It may
// exceed the vocabulary of the data, never fall below it. Throws InputError naming the key, file or
// value at fault. Ids of token files are checked whenever they are read, and the first 2^28 tokens
// of each stream here, so that a bad file shows before training begins.
Data open_data(const DataConfig& config, int64_t vocab_size, const Vocabulary* of_model = nullptr);

}  // namespace xtrain
