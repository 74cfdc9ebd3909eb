#pragma once
// Text after text to token ids, with any vocabulary.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/bpe_tokenizer.h"
#include "train/data/vocabulary.h"

namespace xtrain {

// For one thread. What it remembers from one text to the next makes it faster and changes no ids.
class TextEncoder {
 public:
  // The vocabulary must outlive the encoder.
  explicit TextEncoder(const Vocabulary& vocabulary);

  // Appends the ids of `text`. Throws InputError, beginning with `where`, for text that has none.
  void encode(std::string_view text, const std::string& where, std::vector<int32_t>& ids,
              Markers markers = Markers::tokens);

 private:
  const Vocabulary& vocabulary_;
  std::optional<BpeEncoder> bpe_;
};

}  // namespace xtrain
