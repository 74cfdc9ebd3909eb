#include "train/data/pre_tokenizer.h"

#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"

namespace xtrain {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(std::string_view pattern, std::string_view text) {
  std::vector<size_t> ends;
  PreTokenizer(pattern).split(text, ends);
  Pieces out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  CHECK(begin == text.size());
  return out;
}

TEST_CASE("pre_tokenizer: the three known patterns cut words, numbers, signs and spaces") {
  const std::string_view text = "I'LL say it's  1234 x=\n\n y";
  CHECK(pieces(kGpt2Pattern, text) ==
        Pieces{"I", "'", "LL", " say", " it", "'s", " ", " 1234", " x", "=", "\n\n", " y"});
  CHECK(pieces(kQwen2Pattern, text) ==
        Pieces{"I", "'LL", " say", " it", "'s", " ", " ", "1", "2", "3", "4", " x", "=\n\n", " y"});
  CHECK(pieces(kLlama3Pattern, text) ==
        Pieces{"I", "'LL", " say", " it", "'s", " ", " ", "123", "4", " x", "=\n\n", " y"});
}

TEST_CASE("pre_tokenizer: letters beyond ASCII belong to the word that they end") {
  CHECK(pieces(kGpt2Pattern, " caf\u00e9 na\u00efve") == Pieces{" caf\u00e9", " na\u00efve"});
  CHECK(pieces(kGpt2Pattern, "\u4eca\u5929\u3002") == Pieces{"\u4eca\u5929", "\u3002"});
}

TEST_CASE("pre_tokenizer: spaces are those of Unicode") {
  CHECK(pieces(kGpt2Pattern, "\u00a0\u3000a") == Pieces{"\u00a0", "\u3000", "a"});
  CHECK(pieces(kGpt2Pattern, "!\u180e") == Pieces{"!\u180e"});
  CHECK(pieces(R"([\s]\S)", "a bc") == Pieces{"a", " b", "c"});
}

TEST_CASE("pre_tokenizer: bytes that are not valid UTF-8 are pieces of their own") {
  CHECK(pieces(kGpt2Pattern, "ab\xFF\xFE\x80 cd\xE2\x82") ==
        Pieces{"ab", "\xFF\xFE\x80", " cd", "\xE2\x82"});
  CHECK(pieces(kGpt2Pattern, "").empty());
}

TEST_CASE("pre_tokenizer: what a pattern leaves out is kept, and matches of nothing are none") {
  CHECK(pieces("b*", "abba") == Pieces{"a", "bb", "a"});
}

TEST_CASE("pre_tokenizer: millions of equal characters are one piece") {
  for (const std::string_view pattern : {kGpt2Pattern, kQwen2Pattern, kLlama3Pattern}) {
    for (const char c : {' ', '\n'}) CHECK(pieces(pattern, std::string(11'000'000, c)).size() == 1);
  }
}

TEST_CASE("pre_tokenizer: a pattern that cannot be compiled is refused with the reason") {
  CHECK(rejection([] { PreTokenizer("(a"); }) ==
        "pre-tokenizer: the pattern cannot be compiled: missing closing parenthesis");
}

}  // namespace
}  // namespace xtrain
