#pragma once
// Learning the merges of a byte-pair encoding from text: again and again the most frequent pair of
// neighbouring tokens becomes a token. Of equally frequent pairs the one seen first in the text
// wins, so equal text gives equal merges.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "train/data/bpe.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/pre_tokenizer.h"

namespace xtrain {

// The different pieces of texts, in the order of their first appearance, and how often each comes.
class PieceCounts {
 public:
  explicit PieceCounts(PreTokenizer pre_tokenizer);
  PieceCounts(PieceCounts&&) = default;
  PieceCounts& operator=(PieceCounts&&) = default;
  PieceCounts(const PieceCounts&) = delete;  // the views below would look into the other

  void add(std::string_view text);
  void add(const PieceCounts& later);  // counts of the text that follows
  void clear();

  const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
  const std::vector<std::string_view>& pieces() const { return pieces_; }
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  void add_piece(std::string piece, int64_t count);

  PreTokenizer pre_tokenizer_;
  std::unordered_map<std::string, size_t> place_;  // its keys stay where they are
  std::vector<std::string_view> pieces_;
  std::vector<int64_t> counts_;
  std::vector<size_t> ends_;
};

struct BpeTraining {
  int64_t vocab_size = 0;     // with the 256 bytes and the markers; fewer tokens if pairs run out
  int64_t min_frequency = 2;  // pairs seen less often are not merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

// At most `most` merges; a byte's id is its value, that of merge i is 256 + i. Each merge costs
// time in proportion to the places that it changes. Throws InputError when `pieces` is empty or has
// more than 2^31 bytes in all.
std::vector<TokenPair> learn_merges(const PieceCounts& pieces, int64_t most, int64_t min_frequency);

// Throws InputError for a vocab_size that has no room for the bytes and the special tokens, and for
// special tokens that are one byte or less, no UTF-8 or named twice.
void check_training(const BpeTraining& training);

// The tokenizer: bytes, merges, then the special tokens. Throws InputError also where one of these
// was learned as a token of the text.
BpeTokenizer train_bpe(const PieceCounts& pieces, const BpeTraining& training);

}  // namespace xtrain
