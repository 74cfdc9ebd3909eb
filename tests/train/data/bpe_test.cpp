#include "train/data/bpe.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"

namespace xtrain {
namespace {

std::vector<std::string> byte_tokens(std::vector<std::string> more = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

std::vector<int32_t> ids(const Bpe& model, std::string_view piece) {
  BpeScratch scratch;
  std::vector<int32_t> out;
  model.encode(piece, scratch, out);
  return out;
}

// The definition, step by step: the lowest rank of all neighbours, leftmost first.
std::vector<int32_t> ids_by_definition(const Bpe& model, std::string_view piece) {
  std::vector<int32_t> out;
  for (const char c : piece) out.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best = model.merges().size(), place = 0;
    for (size_t i = 0; i + 1 < out.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (model.merges()[rank] == TokenPair{out[i], out[i + 1]}) best = rank, place = i;
      }
    }
    if (best == model.merges().size()) return out;
    out[place] = static_cast<int32_t>(256 + best);
    out.erase(out.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST_CASE("bpe: five equal characters merge from the left") {
  const Bpe model(byte_tokens({"aa"}), {{97, 97}}, false, "test");
  CHECK(ids(model, "aaaaa") == std::vector<int32_t>{256, 256, 97});
  CHECK(ids(model, "").empty());
}

TEST_CASE("bpe: merges go by rank, in whatever order they appear in the text") {
  const Bpe model(byte_tokens({"bc", "ab", "abc", "cab", "bcbc"}),
                  {{98, 99}, {97, 98}, {97, 256}, {99, 257}, {256, 256}}, false, "test");
  CHECK(ids(model, "abc") == std::vector<int32_t>{258});
  CHECK(ids(model, "cab") == std::vector<int32_t>{259});
  std::string piece;
  for (uint32_t i = 0, state = 7; i < 400; ++i) {
    state = state * 1664525 + 1013904223;
    piece += static_cast<char>('a' + (state >> 24) % 3);
  }
  CHECK(ids(model, piece) == ids_by_definition(model, piece));
}

TEST_CASE("bpe: a million equal characters take no more than their share of time") {
  std::vector<std::string> powers;
  std::vector<TokenPair> merges;
  for (int32_t i = 0; i < 10; ++i) {
    powers.push_back(std::string(size_t{2} << i, 'a'));
    merges.push_back(i == 0 ? TokenPair{97, 97} : TokenPair{255 + i, 255 + i});
  }
  const Bpe model(byte_tokens(powers), merges, false, "test");
  const auto out = ids(model, std::string(1'000'000, 'a'));
  REQUIRE(out.size() == 976 + 2);  // 1,000,000 = 976 * 1024 + 512 + 64
  CHECK(out[975] == 265);
  CHECK(out[976] == 264);
  CHECK(out[977] == 261);
}

TEST_CASE("bpe: with ignore_merges a piece that is a token is taken whole") {
  const Bpe merged(byte_tokens({"abc"}), {}, false, "test"),
      whole(byte_tokens({"abc"}), {}, true, "");
  CHECK(ids(merged, "abc") == std::vector<int32_t>{97, 98, 99});
  CHECK(ids(whole, "abc") == std::vector<int32_t>{256});
}

TEST_CASE("bpe: a vocabulary that does not hold together is refused") {
  const auto why = [](std::vector<std::string> tokens, std::vector<TokenPair> merges) {
    return rejection([&] { Bpe(std::move(tokens), std::move(merges), false, "t.json"); });
  };
  auto without_space = byte_tokens();
  without_space[32] = "xx";
  CHECK(why(without_space, {}) ==
        "t.json: a byte-level vocabulary must have a token for every byte; none is \"\u0120\"");
  CHECK(why(byte_tokens({" a", " a"}), {}) ==
        "t.json: ids 256 and 257 are the same token \"\u0120a\"");
  CHECK(why(byte_tokens(), {{97, 98}}) == "t.json: merge 0 gives \"ab\", which is no token");
  CHECK(why(byte_tokens({"ab"}), {{97, 98}, {97, 98}}) ==
        "t.json: merge 1 of \"a\" and \"b\" is listed twice");
}

}  // namespace
}  // namespace xtrain
