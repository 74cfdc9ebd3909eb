#pragma once
// Where characters of UTF-8 begin and end. Strict: overlong forms, surrogates and values beyond
// U+10FFFF are no characters.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace xtrain {

// Bytes of the valid character at the start of `text`; 0 where none stands there.
size_t utf8_character_length(std::string_view text);

// The code point of a valid character.
uint32_t utf8_code_point(std::string_view character);

// Whether a valid character has Unicode's property White_Space.
bool is_white_space(std::string_view character);

// Bytes at the start of `text` that are valid UTF-8.
size_t valid_utf8_length(std::string_view text);

// Bytes at the end of `text`, 0..3, that begin a character without completing it.
size_t unfinished_utf8_length(std::string_view text);

// Hands on a text that comes in pieces cut at any byte, never splitting a character. What comes
// out, joined, is what went in, byte for byte: bytes that can become no character pass at once.
class Utf8Stream {
 public:
  // What can be shown once `bytes` have come.
  std::string push(std::string_view bytes);
  // What is held back at the end of the text: the start of a character, or nothing.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace xtrain
