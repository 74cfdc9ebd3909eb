#pragma once
// What a model is evaluated on: text, files of tokens, or the built-in stories.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/data/token_source.h"
#include "train/data/vocabulary.h"

namespace xtrain {

struct EvalData {
  std::vector<std::string> files;  // paths or patterns, which form one stream; none: stories
  // text: files of text, whatever they look like; raw_u16, headered: files of tokens in this layout
  // (see DataConfig::format); auto: found from the files
  std::string format = "auto";
  int64_t stories = 2400;  // validation stories, which training never sees
  uint64_t stories_seed = 1;
};

// A stream of ids of the vocabulary, with which text is encoded. Throws InputError naming the file
// or option at fault; so it does where files say that their ids mean something else.
std::shared_ptr<const TokenSource> open_eval_data(const EvalData& data,
                                                  const Vocabulary& vocabulary);

}  // namespace xtrain
