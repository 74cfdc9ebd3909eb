#include "train/data/utf8.h"

#include <string>
#include <string_view>

#include "support/catch.h"

namespace xtrain {
namespace {

using namespace std::string_literals;

TEST_CASE("utf8: characters are told from bytes that are none") {
  for (const auto& [text, length] : {std::pair{"a"s, 1u},
                                     {"\u00e9x"s, 2u},
                                     {"\u20ac"s, 3u},
                                     {"\U0001F642"s, 4u},
                                     {""s, 0u},
                                     {"\x80"s, 0u},
                                     {"\xC0\x80"s, 0u},
                                     {"\xE0\x80\x80"s, 0u},
                                     {"\xED\xA0\x80"s, 0u},
                                     {"\xF0\x80\x80\x80"s, 0u},
                                     {"\xF4\x90\x80\x80"s, 0u},
                                     {"\xF0\x9F\x99"s, 0u}}) {
    CHECK(utf8_character_length(text) == length);
  }
  CHECK(valid_utf8_length("eight ascii bytes \u00e9\xFF z") == 20);
  CHECK(valid_utf8_length("\U0001F642\xE2\x82") == 4);
}

TEST_CASE("utf8: code points of characters of every length") {
  for (const auto& [character, value] : {std::pair{"\x7F"s, 0x7Fu},
                                         {"\u0080"s, 0x80u},
                                         {"\u07FF"s, 0x7FFu},
                                         {"\u0800"s, 0x800u},
                                         {"\uFFFD"s, 0xFFFDu},
                                         {"\U00010000"s, 0x10000u},
                                         {"\U0010FFFF"s, 0x10FFFFu}}) {
    CHECK(utf8_code_point(character) == value);
  }
}

TEST_CASE("utf8: the start of a character at the end is found, and nothing else") {
  const std::string smile = "\U0001F642";
  for (size_t n = 1; n < 4; ++n) CHECK(unfinished_utf8_length("ab" + smile.substr(0, n)) == n);
  for (const std::string& text : {""s, "a"s, smile, "\xFF"s, "\x80\x80"s, "\xE0\x80"s, "\xC1"s}) {
    CHECK(unfinished_utf8_length(text) == 0);
  }
}

TEST_CASE("utf8: a stream never splits a character and brings every byte back") {
  const std::string text =
      "a\u00e9\u20ac\U0001F642\xFF\xFE\x80"
      "A\xE2\x82"
      "B\xF0\x9F";
  Utf8Stream stream;
  std::string shown;
  for (const char c : text) {
    const std::string part = stream.push({&c, 1});
    CHECK(unfinished_utf8_length(part) == 0);
    CHECK((part != "\x82" && part != "\x99"));
    shown += part;
  }
  CHECK(shown == text.substr(0, text.size() - 2));
  CHECK(stream.finish() == "\xF0\x9F");
  CHECK(stream.finish().empty());
}

TEST_CASE("utf8: a character that comes in four pieces is shown once, when it is whole") {
  Utf8Stream stream;
  CHECK(stream.push("\xF0").empty());
  CHECK(stream.push("\x9F").empty());
  CHECK(stream.push("\x99").empty());
  CHECK(stream.push("\x82") == "\U0001F642");
}

}  // namespace
}  // namespace xtrain
