#include "train/data/bpe_trainer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

PieceCounts counted(std::string_view text, std::string_view pattern = kGpt2Pattern) {
  PieceCounts counts{PreTokenizer(pattern)};
  counts.add(text);
  return counts;
}

// The definition: count all pairs anew for each merge.
std::vector<TokenPair> merges_by_definition(const PieceCounts& counts, int32_t most) {
  std::vector<std::vector<int32_t>> pieces;
  for (const auto piece : counts.pieces()) {
    pieces.emplace_back();
    for (const char c : piece) pieces.back().push_back(static_cast<unsigned char>(c));
  }
  std::vector<TokenPair> merges;
  for (int32_t id = 256; id < 256 + most; ++id) {
    std::vector<std::pair<TokenPair, int64_t>> seen;  // in order of appearance
    for (size_t p = 0; p < pieces.size(); ++p) {
      for (size_t i = 0; i + 1 < pieces[p].size(); ++i) {
        const TokenPair pair{pieces[p][i], pieces[p][i + 1]};
        auto found =
            std::find_if(seen.begin(), seen.end(), [&](auto& s) { return s.first == pair; });
        if (found == seen.end()) found = seen.insert(seen.end(), {pair, 0});
        found->second += counts.counts()[p];
      }
    }
    const auto best = std::max_element(seen.begin(), seen.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (best == seen.end() || best->second < 2) break;
    merges.push_back(best->first);
    for (auto& piece : pieces) {
      for (size_t i = 0; i + 1 < piece.size(); ++i) {
        if (TokenPair{piece[i], piece[i + 1]} != merges.back()) continue;
        piece[i] = id;
        piece.erase(piece.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

TEST_CASE("bpe_trainer: the most frequent pair merges first, of equals the one seen first") {
  const PieceCounts counts = counted("aaabdaaabac");
  CHECK(learn_merges(counts, 3, 2) == std::vector<TokenPair>{{97, 97}, {256, 97}, {257, 98}});
  auto tokenizer = std::make_shared<BpeTokenizer>(train_bpe(counts, {259, 2, {}}));
  std::vector<int32_t> ids;
  BpeEncoder(tokenizer).encode("aaabdaaabac", ids);
  CHECK(ids == std::vector<int32_t>{258, 100, 258, 97, 99});
  CHECK(tokenizer->decode(ids) == "aaabdaaabac");
}

TEST_CASE("bpe_trainer: counts kept up to date give the merges of counting anew") {
  std::string text;
  for (uint32_t i = 0, state = 3; i < 3000; ++i) {
    state = state * 1664525 + 1013904223;
    text += "aaabbcd  \n"[(state >> 24) % 10];
  }
  const PieceCounts words = counted(text), one_piece = counted(text, "(?s).+");
  CHECK(one_piece.pieces().size() == 1);
  for (const PieceCounts* counts : {&words, &one_piece}) {
    const auto merges = learn_merges(*counts, 300, 2);
    CHECK(merges.size() > 100);
    CHECK(merges == merges_by_definition(*counts, 300));
  }
}

TEST_CASE("bpe_trainer: a text of one character a million times is learned in little time") {
  const auto merges = learn_merges(counted(std::string(1'000'000, 'a')), 5, 2);
  CHECK(merges == std::vector<TokenPair>{{97, 97}, {256, 256}, {257, 257}, {258, 258}, {259, 259}});
}

TEST_CASE("bpe_trainer: special tokens come last; fewer pairs than asked give fewer tokens") {
  const BpeTokenizer tokenizer = train_bpe(counted("ab ab ab"), {1000, 2, {"<|a|>", "<|b|>"}});
  CHECK(tokenizer.parts().model.merges() == std::vector<TokenPair>{{97, 98}, {32, 256}});
  CHECK(tokenizer.size() == 260);
  CHECK(tokenizer.added_id("<|a|>") == 258);
  CHECK(tokenizer.added_id("<|b|>") == 259);
}

TEST_CASE("bpe_trainer: trained, written and read, it gives the same ids") {
  const std::string text = "a\r\nb\n\n\n  c\t\u00a0d a\r\nb\n\n\n  c\t\u00a0d";
  auto trained = std::make_shared<BpeTokenizer>(train_bpe(counted(text), {300, 2}));
  auto read =
      std::make_shared<BpeTokenizer>(parse_tokenizer_json(to_tokenizer_json(*trained), "t.json"));
  std::vector<int32_t> before, after;
  BpeEncoder(trained).encode("\uFEFF" + text, before);
  BpeEncoder(read).encode("\uFEFF" + text, after);
  CHECK(before == after);
  CHECK(before.size() < text.size());
  CHECK(read->decode(after) == "\uFEFF" + text);
}

TEST_CASE("bpe_trainer: special tokens that are no tokens of their own are refused") {
  const auto why = [](std::vector<std::string> special) {
    return rejection([&] { train_bpe(counted("ab ab ab"), {300, 2, special}); });
  };
  CHECK(why({"<a>", "<a>"}) == "special token \"<a>\" is named twice");
  CHECK(why({""}) == "a special token must be valid UTF-8 of more than one byte; got \"\"");
  CHECK(why({"\u0120"}) ==
        "special token \"\u0120\" is how tokenizer.json spells a byte; choose another");
  CHECK(why({"a"}) == "a special token must be valid UTF-8 of more than one byte; got \"a\"");
  CHECK(why({"\xFF\xFE"}).starts_with("a special token must be valid UTF-8"));
  CHECK(why({"ab"}) ==
        "special token \"ab\" is a word of the text, learned as a token; choose another");
}

TEST_CASE("bpe_trainer: an empty text and a vocabulary without room are refused") {
  CHECK(rejection([] {
          train_bpe(counted(""), {300, 2});
        }) == "tokenizer: the text to learn from must not be empty");
  CHECK(rejection([] {
          train_bpe(counted("abc"), {256, 2});
        }) == "vocab_size must lie in 257..16777216, with 256 bytes and 1 special tokens; got 256");
}

}  // namespace
}  // namespace xtrain
