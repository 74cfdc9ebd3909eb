#pragma once
// The meaning of token ids: text to ids and back. A small JSON file keeps it beside a checkpoint.
//
//   bytes  id = byte value, 256 ids. Any file, valid UTF-8 or not, comes back byte for byte, and a
//          character cut between two tokens comes back whole once both are written.
//   chars  one id per UTF-8 character, numbered in code point order.
//   bpe    byte-pair encoding, kept as Hugging Face's tokenizer.json. Any bytes come back, except
//          where that file asks for a normalizer.
//   ids    numbers whose text is not known; written "17 4 " and read from such a list.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

class BpeTokenizer;

// The characters of UTF-8 texts.
class CharacterSet {
 public:
  // Text that is not UTF-8 is refused with `where` and the byte's offset.
  void add(std::string_view text, std::string_view where);
  std::vector<uint32_t> code_points() const;  // ascending

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

class Vocabulary {
 public:
  enum class Kind { bytes, chars, bpe, ids };

  static Vocabulary bytes();
  static Vocabulary ids(int64_t size);

  static Vocabulary chars(const CharacterSet& characters);

  static Vocabulary bpe(std::shared_ptr<const BpeTokenizer> tokenizer);

  Kind kind() const { return kind_; }
  std::string_view kind_name() const;
  int64_t size() const { return size_; }

  // Throws InputError, naming `where` and the byte offset, for text that has no ids.
  std::vector<int32_t> encode(std::string_view text, std::string_view where = "text") const;

  // The text of ids; that of a sequence is the text of its ids one after the other. Throws Error
  // for an id outside [0, size).
  std::string decode(std::span<const int32_t> ids) const;

  // The tokenizer of kind bpe, for a BpeEncoder over much text; null for the other kinds.
  const std::shared_ptr<const BpeTokenizer>& tokenizer() const { return tokenizer_; }

  // Of kind bpe, a tokenizer.json.
  std::string to_json() const;
  static Vocabulary from_json(std::string_view json, const std::string& where);
  static Vocabulary load(const std::string& path);

 private:
  Vocabulary(Kind kind, int64_t size) : kind_(kind), size_(size) {}

  Kind kind_;
  int64_t size_;
  std::vector<uint32_t> code_points_;  // chars: sorted, index = id
  std::shared_ptr<const BpeTokenizer> tokenizer_;
};

}  // namespace xtrain
