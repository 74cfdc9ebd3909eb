#pragma once
// Contents of llm.c's files of multiple-choice examples, with room for faults.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "train/data/token_bytes.h"
#include "train/eval/multiple_choice.h"

namespace xtrain {

using ExampleWords = std::vector<uint16_t>;

inline ExampleWords example_words(const MultipleChoiceExample& example, int64_t index) {
  ExampleWords words{65535, 0, static_cast<uint16_t>(index), static_cast<uint16_t>(example.answer),
                     static_cast<uint16_t>(example.choices.size())};
  const auto add = [&](const std::vector<int32_t>& tokens) {
    words.push_back(static_cast<uint16_t>(tokens.size()));
    words.insert(words.end(), tokens.begin(), tokens.end());
  };
  add(example.context);
  for (const auto& choice : example.choices) add(choice);
  words[1] = static_cast<uint16_t>(2 * words.size());
  return words;
}

inline std::string eval_file(const std::vector<ExampleWords>& examples, int32_t magic = 20240522,
                             int32_t version = 1, int32_t longest_by = 0) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(examples.size());
  std::string body;
  for (const ExampleWords& words : examples) {
    header[3] = std::max(header[3], static_cast<int32_t>(2 * words.size()));
    body += packed(words);
  }
  header[3] += longest_by;
  return packed(header) + body;
}

}  // namespace xtrain
