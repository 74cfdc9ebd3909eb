#pragma once
// From the `data` section of a configuration to token sources.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mapped_file.h"
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
// vocab_file, they tell their vocabulary (token_vocabulary.h) or the model brings one,
// `of_model`, which text is then read with. It may exceed the vocabulary of the data, never fall
// below it. Throws InputError naming the key, file or value at fault. Ids of token files are
// checked whenever they are read, and the first 2^28 tokens of each stream here, so that a bad file
// shows before training begins.
Data open_data(const DataConfig& config, int64_t vocab_size, const Vocabulary* of_model = nullptr);

// The first `count` of the stories that runs of this seed validate on and never train on.
std::shared_ptr<const TokenSource> validation_stories(uint64_t seed, int64_t count);

// The files that paths and patterns name, in the order of DataConfig::train_files.
std::vector<MappedFile> open_data_files(const std::vector<std::string>& patterns);

}  // namespace xtrain
