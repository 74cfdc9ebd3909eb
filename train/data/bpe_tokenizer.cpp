#include "train/data/bpe_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "train/data/nfc.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

static_assert(std::endian::native == std::endian::little, "keys have the first byte lowest");

constexpr size_t kLongestRemembered = 23;
constexpr size_t kRememberedPieces = size_t{1} << 15;  // 2 MiB, what a core's own cache holds

// A short piece, zeros behind it and its length at the end, as numbers that compare at once.
using PieceKey = std::array<uint64_t, 3>;

template <class Word>
uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The last `count` bytes before `end`, of which there are at most 8, as the low bytes of a word.
// At least as many bytes as a Word has must lie before `end`.
template <class Word>
uint64_t load_tail(const char* end, size_t count) {
  return load<Word>(end - sizeof(Word)) >> (8 * (sizeof(Word) - count));
}

// Words that overlap take the place of a copy whose length is not known beforehand.
PieceKey key_of(std::string_view piece) {
  const char* const begin = piece.data();
  const char* const end = begin + piece.size();
  const size_t size = piece.size();
  PieceKey key{};
  if (size > 8) {
    key[0] = load<uint64_t>(begin);
    key[1] = size > 16 ? load<uint64_t>(begin + 8) : load_tail<uint64_t>(end, size - 8);
    if (size > 16) key[2] = load_tail<uint64_t>(end, size - 16);
  } else if (size >= 4) {
    key[0] = load<uint32_t>(begin);
    if (size > 4) key[0] |= load_tail<uint32_t>(end, size - 4) << 32;
  } else {
    for (size_t i = 0; i < size; ++i) {
      key[0] |= uint64_t{static_cast<unsigned char>(begin[i])} << (8 * i);
    }
  }
  key[2] |= uint64_t{size} << 56;
  return key;
}

// std::array compares through memcmp, whose call costs more than the comparison.
bool same(const PieceKey& a, const PieceKey& b) {
  return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) == 0;
}

size_t slot_of(const PieceKey& key) {
  const uint64_t mixed = (key[0] ^ (key[1] * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u ^
                         (key[2] * 0xA0761D6478BD642Fu);
  return ((mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93u) >> 49;
}
static_assert(kRememberedPieces == size_t{1} << (64 - 49));

}  // namespace

BpeTokenizer::BpeTokenizer(Parts parts, std::string_view where) : parts_(std::move(parts)) {
  const auto& tokens = parts_.model.tokens();
  token_of_id_.assign(tokens.begin(), tokens.end());
  for (const AddedToken& added : parts_.added) {
    check_input(!added.content.empty() && added.id >= 0 &&
                    valid_utf8_length(added.content) == added.content.size(),
                where, ": added token ", added.id,
                " must have a content of valid UTF-8 and an id that is not negative");
    const auto id = static_cast<size_t>(added.id);
    if (id >= token_of_id_.size()) token_of_id_.resize(id + 1);
    if (id >= special_.size()) special_.resize(id + 1);
    auto& token = token_of_id_[id];
    check_input(token.empty() || (id < tokens.size() && token == added.content), where,
                ": added token ", added.id, " has the id of another token");
    check_input(added_id(added.content) < 0, where, ": added token ", added.id,
                " is listed under another id too");
    token = added.content;
    special_[id] = added.special;
    added_by_first_[static_cast<unsigned char>(added.content[0])].push_back(&added);
  }
  special_.resize(token_of_id_.size());
  for (auto& same_first : added_by_first_) {
    std::stable_sort(same_first.begin(), same_first.end(), [](const auto* a, const auto* b) {
      return a->content.size() > b->content.size();
    });
  }
}

const AddedToken* BpeTokenizer::added_at(std::string_view text) const {
  if (text.empty()) return nullptr;
  for (const AddedToken* added : added_by_first_[static_cast<unsigned char>(text[0])]) {
    if (text.starts_with(added->content)) return added;
  }
  return nullptr;
}

int32_t BpeTokenizer::added_id(std::string_view content) const {
  if (content.empty()) return -1;
  for (const AddedToken* added : added_by_first_[static_cast<unsigned char>(content[0])]) {
    if (added->content == content) return added->id;
  }
  return -1;
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids) {
    check(id >= 0 && id < size() && !token_of_id_[static_cast<size_t>(id)].empty(),
          "tokenizer: an id must be that of a token, in 0..", size() - 1, "; got ", id);
    if (!skip_special || !special_[static_cast<size_t>(id)]) {
      out += token_of_id_[static_cast<size_t>(id)];
    }
  }
  return out;
}

BpeEncoder::BpeEncoder(std::shared_ptr<const BpeTokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)), remembered_(kRememberedPieces) {}

void BpeEncoder::encode(std::string_view text, std::vector<int32_t>& ids, Markers markers) {
  size_t plain = 0;  // start of the text since the last marker
  for (size_t at = 0; markers == Markers::tokens && at < text.size();) {
    const AddedToken* added = tokenizer_->added_at(text.substr(at));
    if (!added) {
      ++at;
      continue;
    }
    encode_plain(text.substr(plain, at - plain), ids);
    ids.push_back(added->id);
    plain = at += added->content.size();
  }
  encode_plain(text.substr(plain), ids);
}

void BpeEncoder::encode_plain(std::string_view text, std::vector<int32_t>& ids) {
  std::string normalized;
  if (tokenizer_->parts().nfc && !surely_nfc(text)) text = normalized = to_nfc(text);
  ends_.clear();
  tokenizer_->parts().pre_tokenizer.split(text, ends_);
  size_t begin = 0;
  for (const size_t end : ends_) {
    encode_piece(text.substr(begin, end - begin), ids);
    begin = end;
  }
}

void BpeEncoder::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  const Bpe& model = tokenizer_->parts().model;
  if (piece.size() > kLongestRemembered) return model.encode(piece, scratch_, ids);
  const PieceKey key = key_of(piece);
  Remembered& known = remembered_[slot_of(key)];
  if (!same(known.key, key)) {
    const size_t before = ids.size();
    model.encode(piece, scratch_, ids);
    const size_t count = ids.size() - before;
    if (count > known.ids.size()) return;
    known.key = key;
    known.count = static_cast<uint32_t>(count);
    std::copy(ids.end() - static_cast<ptrdiff_t>(count), ids.end(), known.ids.begin());
    return;
  }
  ids.insert(ids.end(), known.ids.begin(), known.ids.begin() + known.count);
}

}  // namespace xtrain
