#include "train/data/text_cutter.h"

#include <algorithm>

#include "train/data/utf8.h"

namespace xtrain {
namespace {

constexpr size_t kLongestCharacter = 4;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The valid character that ends at `end`; empty where none does.
std::string_view character_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= std::min(kLongestCharacter, end); ++length) {
    const std::string_view character = text.substr(end - length, length);
    if (utf8_character_length(character) == length) return character;
  }
  return {};
}

bool is_valid_ink(std::string_view character) {
  return !character.empty() && !is_white_space(character);
}

std::string_view character_at(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at, kLongestCharacter);
  return rest.substr(0, utf8_character_length(rest));
}

// In the patterns of GPT-2, Qwen2 and Llama 3 a piece that holds an ASCII letter ends before any
// other ASCII character, and one that holds anything but white space ends before a space. A lone
// line end between two such characters is a piece of its own, or ends the piece of the signs before
// it. In all three cases, what the expression sees of the other side cannot matter. Neither does
// form C join anything across such a border.
bool between_pieces(std::string_view text, size_t at) {
  const char before = text[at - 1], after = text[at];
  if (is_letter(before)) return (after & 0x80) == 0 && !is_letter(after);
  if (after == ' ') return is_valid_ink(character_before(text, at));
  return before == '\n' && is_valid_ink(character_before(text, at - 1)) &&
         is_valid_ink(character_at(text, at));
}

}  // namespace

TextCutter::TextCutter(std::string_view pattern)
    : rule_(pattern == kGpt2Pattern || pattern == kQwen2Pattern || pattern == kLlama3Pattern
                ? Rule::pieces
                : Rule::nowhere) {}

TextCutter::TextCutter(const Vocabulary& vocabulary, Markers markers) : rule_(Rule::nowhere) {
  switch (vocabulary.kind()) {
    case Vocabulary::Kind::bytes:
      rule_ = Rule::anywhere;
      return;
    case Vocabulary::Kind::chars:
      rule_ = Rule::characters;
      return;
    case Vocabulary::Kind::ids:
      return;
    case Vocabulary::Kind::bpe:
      break;
  }
  const BpeTokenizer::Parts& parts = vocabulary.tokenizer()->parts();
  *this = TextCutter(parts.pre_tokenizer.pattern());
  if (markers == Markers::plain_text) return;
  for (const AddedToken& added : parts.added) {
    markers_.push_back(added.content);
    longest_marker_ = std::max(longest_marker_, added.content.size());
  }
}

bool TextCutter::inside_marker(std::string_view text, size_t at) const {
  return std::any_of(markers_.begin(), markers_.end(), [&](std::string_view marker) {
    for (size_t before = 1; before < marker.size() && before <= at; ++before) {
      if (text.substr(at - before).starts_with(marker)) return true;
    }
    return false;
  });
}

bool TextCutter::is_border(std::string_view text, size_t at) const {
  if (rule_ == Rule::anywhere) return true;
  if (rule_ == Rule::characters) return (text[at] & 0xC0) != 0x80;
  return between_pieces(text, at) && !inside_marker(text, at);
}

size_t TextCutter::find(std::string_view text, size_t from) const {
  if (rule_ == Rule::nowhere) return kNowhere;
  const size_t seen = std::max(kLongestCharacter, longest_marker_);
  for (size_t at = from; at + seen <= text.size(); ++at) {
    if (is_border(text, at)) return at;
  }
  return kNowhere;
}

}  // namespace xtrain
