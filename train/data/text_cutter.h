#pragma once
// Where a long text can be cut so that the ids of its parts, joined, are the ids of the whole. A
// file of any size is then encoded in constant memory, and by several threads at once.

#include <cstddef>
#include <string_view>
#include <vector>

#include "train/data/bpe_tokenizer.h"
#include "train/data/vocabulary.h"

namespace xtrain {

class TextCutter {
 public:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  // Bytes are cut anywhere, chars between characters. A tokenizer with a well-known pattern is cut
  // where no piece of that pattern, and with Markers::tokens no added token, can reach across;
  // with any other pattern nowhere.
  TextCutter(const Vocabulary& vocabulary, Markers markers);
  // For the pieces of a pattern alone.
  explicit TextCutter(std::string_view pattern);

  // The first border at or after `from`, which must be at least 1; kNowhere where there is none.
  // More text may follow: a border is found only where enough of what is behind it can be seen.
  size_t find(std::string_view text, size_t from) const;

 private:
  bool is_border(std::string_view text, size_t at) const;
  bool inside_marker(std::string_view text, size_t at) const;

  enum class Rule { anywhere, characters, pieces, nowhere } rule_;
  std::vector<std::string_view> markers_;  // views of the vocabulary's tokenizer
  size_t longest_marker_ = 0;
};

}  // namespace xtrain
