#include "train/data/text_cutter.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "train/data/small_tokenizers.h"

namespace xtrain {
namespace {

// Whether the ids of the two sides of each border in `text`, joined, are those of the whole;
// counts the borders.
size_t check_borders(const std::shared_ptr<const BpeTokenizer>& tokenizer, BpeEncoder& encoder,
                     std::string_view text, Markers markers) {
  const TextCutter cutter(Vocabulary::bpe(tokenizer), markers);
  std::vector<int32_t> whole, joined;
  encoder.encode(text, whole, markers);
  size_t borders = 0;
  for (size_t at = 1; (at = cutter.find(text, at)) != TextCutter::kNowhere; ++at, ++borders) {
    joined.clear();
    encoder.encode(text.substr(0, at), joined, markers);
    encoder.encode(text.substr(at), joined, markers);
    if (joined != whole) {
      FAIL_CHECK("cut between \"" << text.substr(0, at) << "\" and \"" << text.substr(at) << '"');
    }
  }
  return borders;
}

TEST_CASE("text_cutter: a text cut at any border has the ids of the whole") {
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    const auto tokenizer = small_tokenizer(name);
    BpeEncoder encoder(tokenizer);
    size_t borders = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const std::string text = mixed_text(300, seed);
      for (const Markers markers : {Markers::tokens, Markers::plain_text}) {
        borders += check_borders(tokenizer, encoder, text, markers);
      }
    }
    CHECK(borders > 2000);
  }
}

// All texts of a few characters that patterns treat differently.
TEST_CASE("text_cutter: borders hold in every short text of letters, signs and spaces") {
  const std::vector<std::string> alphabet{"s",      "1",      " ",      "\n",     "\r",  "'",
                                          "\u00e9", "\u3000", "\u3002", "\u0301", "\xFF"};
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    const auto tokenizer = small_tokenizer(name);
    BpeEncoder encoder(tokenizer);
    size_t borders = 0;
    constexpr size_t kLength = 4;
    for (size_t number = 0; number < 11 * 11 * 11 * 11; ++number) {
      std::string text;
      for (size_t i = 0, rest = number; i < kLength; ++i, rest /= 11) text += alphabet[rest % 11];
      borders += check_borders(tokenizer, encoder, text + "ssss", Markers::plain_text);
    }
    CHECK(borders > 1000);
  }
}

TEST_CASE("text_cutter: an added token is not cut through") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const auto tokenizer =
      std::make_shared<BpeTokenizer>(BpeTokenizer::Parts{Bpe(tokens, {}, false, "t"),
                                                         PreTokenizer(kGpt2Pattern),
                                                         {{256, "<|end of|text|>"}},
                                                         false,
                                                         ""},
                                     "t");
  BpeEncoder encoder(tokenizer);
  const std::string text = "abc <|end of|text|> <|end of|texts";
  CHECK(check_borders(tokenizer, encoder, text, Markers::tokens) > 0);
  const TextCutter cutter(Vocabulary::bpe(tokenizer), Markers::tokens);
  CHECK(cutter.find(text, 1) == 3);
  CHECK(cutter.find(text, 4) == 19);
  // What may yet become a marker is not a border either.
  CHECK(cutter.find("abcdefghijklmnop <|e", 1) == TextCutter::kNowhere);
}

TEST_CASE("text_cutter: bytes are cut anywhere, chars between characters, others nowhere") {
  const std::string text = "\u00e9\u00e9\u00e9\u00e9\u00e9";
  CHECK(TextCutter(Vocabulary::bytes(), Markers::plain_text).find(text, 3) == 3);
  const TextCutter chars(Vocabulary::chars(CharacterSet()), Markers::plain_text);
  CHECK(chars.find(text, 3) == 4);
  CHECK(chars.find(text, 4) == 4);
  CHECK(TextCutter("[a-z]+|.").find("ab cd ef gh", 1) == TextCutter::kNowhere);
  CHECK(TextCutter(kLlama3Pattern).find("ab cd ef gh", 1) == 2);
}

}  // namespace
}  // namespace xtrain
