#include "train/data/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace xtrain {
namespace {

// Bytes of a character by its first byte; 0: cannot be first.
size_t length_by_first(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) return 3;
  return first < 0xF5 ? 4 : 0;
}

// Second bytes have narrower limits after E0 and F0 (overlong forms), ED (surrogates) and F4
// (beyond U+10FFFF).
bool second_fits(unsigned char first, unsigned char second) {
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

// The first min(size, length) bytes can begin a character of `length` bytes.
bool begins_character(std::string_view text, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t known = std::min(text.size(), length);
  if (known > 1 && !second_fits(byte(0), byte(1))) return false;
  for (size_t i = 2; i < known; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return false;
  }
  return true;
}

bool eight_ascii(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

size_t utf8_character_length(std::string_view text) {
  if (text.empty()) return 0;
  const size_t length = length_by_first(static_cast<unsigned char>(text[0]));
  return length > 0 && length <= text.size() && begins_character(text, length) ? length : 0;
}

uint32_t utf8_code_point(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t value = byte(0) & (0xFFu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) value = value << 6 | (byte(i) & 0x3Fu);
  return value;
}

bool is_white_space(std::string_view character) {
  if (character.size() == 1)
    return character[0] == ' ' || (character[0] >= 9 && character[0] <= 13);
  if (character.size() == 2) return character == "\u0085" || character == "\u00a0";
  if (character.size() != 3) return false;
  return (character >= "\u2000" && character <= "\u200a") || character == "\u1680" ||
         character == "\u2028" || character == "\u2029" || character == "\u202f" ||
         character == "\u205f" || character == "\u3000";
}

size_t valid_utf8_length(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    if (end + 8 <= text.size() && eight_ascii(text.data() + end)) {
      end += 8;
      continue;
    }
    const size_t length = utf8_character_length(text.substr(end));
    if (length == 0) break;
    end += length;
  }
  return end;
}

size_t unfinished_utf8_length(std::string_view text) {
  for (size_t tail = 1; tail <= std::min<size_t>(3, text.size()); ++tail) {
    const std::string_view end = text.substr(text.size() - tail);
    const size_t length = length_by_first(static_cast<unsigned char>(end[0]));
    if (length > tail && begins_character(end, length)) return tail;
  }
  return 0;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string shown = std::move(held_);
  shown += bytes;
  const size_t whole = shown.size() - unfinished_utf8_length(shown);
  held_ = shown.substr(whole);
  shown.resize(whole);
  return shown;
}

std::string Utf8Stream::finish() {
  return std::exchange(held_, {});
}

}  // namespace xtrain
