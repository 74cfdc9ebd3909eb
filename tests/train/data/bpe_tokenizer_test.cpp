#include "train/data/bpe_tokenizer.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "train/data/nfc.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;
using Shared = std::shared_ptr<const BpeTokenizer>;

const Json& golden() {
  static const Json kGolden =
      Json::parse(MappedFile(XT_SOURCE_DIR "/tests/golden/tokenizers.json").text());
  return kGolden;
}

// The text that the golden file's ids belong to, drawn as tools/tokenizer_golden.py draws it.
const std::vector<std::string>& golden_blocks() {
  static const std::vector<std::string> kBlocks = [] {
    const auto snippets = golden()["snippets"].get<std::vector<std::string>>();
    const size_t text_bytes = golden()["text_bytes"], block_bytes = golden()["block_bytes"];
    std::vector<std::string> blocks;
    std::string block;
    uint64_t state = 1;
    for (size_t size = 0; size < text_bytes;) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const uint64_t times = (state >> 20) % 64 != 0 ? 1 : 1 + (state >> 26) % 128;
      for (uint64_t i = 0; i < times; ++i) block += snippets[(state >> 33) % snippets.size()];
      if (block.size() < block_bytes) continue;
      size += block.size();
      blocks.push_back(std::move(block));
      block.clear();
    }
    return blocks;
  }();
  return kBlocks;
}

template <class Values>
uint64_t fnv(const Values& values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const auto value : values) hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u;
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Every block's ids are those of the golden file, and decode to the block again.
void check_golden(const Shared& tokenizer, const Json& expected) {
  BpeEncoder encoder(tokenizer);
  std::vector<uint64_t> hashes;
  std::vector<std::string> wrong;
  size_t count = 0;
  for (const std::string& block : golden_blocks()) {
    std::vector<int32_t> ids;
    encoder.encode(block, ids);
    count += ids.size();
    hashes.push_back(fnv(ids));
    if (hex(hashes.back()).substr(0, 8) !=
        expected["blocks"].at(hashes.size() - 1).get<std::string>()) {
      wrong.push_back("block " + std::to_string(hashes.size() - 1));
    }
    if (tokenizer->decode(ids) != (tokenizer->parts().nfc ? to_nfc(block) : block)) {
      wrong.push_back("text of block " + std::to_string(hashes.size() - 1));
    }
  }
  CHECK(wrong == std::vector<std::string>{});
  CHECK(count == expected["ids"].get<size_t>());
  CHECK(hex(fnv(hashes)) == expected["hash"].get<std::string>());
}

Shared small(const std::string& name) {
  const std::string json = golden()["small"][name]["tokenizer"].dump();
  return std::make_shared<BpeTokenizer>(parse_tokenizer_json(json, name));
}

std::vector<int32_t> encode(const Shared& tokenizer, std::string_view text,
                            Markers markers = Markers::tokens) {
  std::vector<int32_t> ids;
  BpeEncoder(tokenizer).encode(text, ids, markers);
  return ids;
}

TEST_CASE("bpe_tokenizer: ids of 3 MB of mixed text are Hugging Face's, with small vocabularies") {
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    INFO(name);
    check_golden(small(name), golden()["small"][name]);
  }
}

TEST_CASE("bpe_tokenizer: ids of 3 MB of mixed text are Hugging Face's, GPT-2 and Qwen2") {
  const std::string folder = XT_SOURCE_DIR "/../shared/data/";
  const std::map<std::string, std::string_view> patterns{{"gpt2", kGpt2Pattern},
                                                         {"qwen2", kQwen2Pattern}};
  for (const auto& [name, pattern] : patterns) {
    if (!std::filesystem::exists(folder + name + "/vocab.json")) {
      WARN("skipped: no " << folder << name << "/vocab.json");
      continue;
    }
    std::vector<AddedToken> added{{name == "gpt2" ? 50256 : 151643, "<|endoftext|>"}};
    if (name == "qwen2")
      added.insert(added.end(), {{151644, "<|im_start|>"}, {151645, "<|im_end|>"}});
    const Shared tokenizer = std::make_shared<BpeTokenizer>(
        load_vocab_and_merges(folder + name + "/vocab.json", folder + name + "/merges.txt", pattern,
                              added, name == "qwen2"));
    CHECK(tokenizer->size() == (name == "gpt2" ? 50257 : 151646));
    check_golden(tokenizer, golden()["given"][name]);
  }
}

TEST_CASE("bpe_tokenizer: any bytes come back, and so does a text of one character") {
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    const Shared tokenizer = small(name);
    std::string bytes = "\uFEFFa\r\n";
    for (uint32_t i = 0, state = 1; i < 20000; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(state >> 24);
    }
    // Random bytes hold no character that form C changes, but for this.
    const std::string expected = tokenizer->parts().nfc ? to_nfc(bytes) : bytes;
    CHECK(tokenizer->decode(encode(tokenizer, bytes)) == expected);
    for (const std::string& text : {std::string(1'000'000, 'a'), std::string(1'000'000, ' ')}) {
      CHECK(tokenizer->decode(encode(tokenizer, text)) == text);
    }
    CHECK(encode(tokenizer, "").empty());
  }
}

TEST_CASE("bpe_tokenizer: markers are tokens or plain text, as asked; the longest wins") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const Shared tokenizer =
      std::make_shared<BpeTokenizer>(BpeTokenizer::Parts{Bpe(tokens, {}, false, "t"),
                                                         PreTokenizer(kGpt2Pattern),
                                                         {{256, "<a>"}, {258, "<a>>", false}},
                                                         false,
                                                         ""},
                                     "t");
  CHECK(encode(tokenizer, "x<a>>y<a><") == std::vector<int32_t>{120, 258, 121, 256, 60});
  CHECK(encode(tokenizer, "<a>", Markers::plain_text) == std::vector<int32_t>{60, 97, 62});
  const std::vector<int32_t> ids{120, 256, 258}, hole{257}, beyond{259};
  CHECK(tokenizer->decode(ids) == "x<a><a>>");
  CHECK(tokenizer->decode(ids, true) == "x<a>>");
  CHECK_THROWS_WITH(tokenizer->decode(hole),
                    "tokenizer: an id must be that of a token, in 0..258; got 257");
  CHECK_THROWS_AS(tokenizer->decode(beyond), Error);
}

TEST_CASE("bpe_tokenizer: added tokens that clash are refused") {
  const auto why = [](std::vector<AddedToken> added) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return rejection([&] {
      BpeTokenizer({Bpe(tokens, {}, false, "t"), PreTokenizer(kGpt2Pattern), added, false, ""},
                   "t");
    });
  };
  CHECK(why({{97, "<a>"}}) == "t: added token 97 has the id of another token");
  CHECK(why({{256, "<a>"}, {257, "<a>"}}) == "t: added token 257 is listed under another id too");
  CHECK(why({{256, ""}}).starts_with("t: added token 256 must have a content"));
  CHECK(why({{256, "\xFF"}}).starts_with("t: added token 256 must have a content"));
}

}  // namespace
}  // namespace xtrain
