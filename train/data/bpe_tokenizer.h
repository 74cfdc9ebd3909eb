#pragma once
// A whole tokenizer of byte-pair encoding, from any bytes to ids and back: added tokens are found
// first, the text between them is normalized where the tokenizer asks for it, cut into pieces and
// encoded.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/bpe.h"
#include "train/data/pre_tokenizer.h"

namespace xtrain {

// A token that stands for a marker such as the end of a document, not for text that was merged.
struct AddedToken {
  int32_t id;
  std::string content;
  bool special = true;      // left out of text that people read
  bool normalized = false;  // kept for the file; markers are found in the text as it came
};

// Immutable; threads may share one, each with a BpeEncoder of its own.
class BpeTokenizer {
 public:
  struct Parts {
    Bpe model;
    PreTokenizer pre_tokenizer;
    std::vector<AddedToken> added;
    bool nfc = false;            // text is brought into Unicode form C first
    std::string post_processor;  // JSON kept for the file; never applied
  };

  // Throws InputError, beginning with `where`, for added tokens that are empty, twice there, or
  // whose id is another token's.
  BpeTokenizer(Parts parts, std::string_view where);
  BpeTokenizer(BpeTokenizer&&) = default;
  BpeTokenizer(const BpeTokenizer&) = delete;  // the views below would look into the other

  int64_t size() const { return static_cast<int64_t>(token_of_id_.size()); }
  const Parts& parts() const { return parts_; }

  // The id of an added token; -1 where none has this content.
  int32_t added_id(std::string_view content) const;

  // The bytes of ids: without a normalizer, of the ids of a text exactly the text. Throws Error for
  // an id that has no token.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The added token that begins `text`, the longest of several; null where none does.
  const AddedToken* added_at(std::string_view text) const;

 private:
  Parts parts_;
  std::vector<std::string_view> token_of_id_;  // views of parts_; empty: no such token
  std::vector<bool> special_;
  std::array<std::vector<const AddedToken*>, 256> added_by_first_;  // longest first
};

// What text that looks like an added token means.
enum class Markers { tokens, plain_text };

// Encodes text after text, remembering the ids of common pieces. Not for several threads at once.
class BpeEncoder {
 public:
  explicit BpeEncoder(std::shared_ptr<const BpeTokenizer> tokenizer);

  // Appends the ids of `text`.
  void encode(std::string_view text, std::vector<int32_t>& ids, Markers markers = Markers::tokens);

 private:
  // One place for each hash: a piece that comes later takes it over, so memory stays constant.
  struct alignas(64) Remembered {
    std::array<uint64_t, 3> key{};  // at most 23 bytes, zeros behind them, and their number
    uint32_t count = 0;
    std::array<int32_t, 9> ids{};
  };

  void encode_plain(std::string_view text, std::vector<int32_t>& ids);
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids);

  std::shared_ptr<const BpeTokenizer> tokenizer_;
  std::vector<Remembered> remembered_;
  std::vector<size_t> ends_;
  BpeScratch scratch_;
};

}  // namespace xtrain
