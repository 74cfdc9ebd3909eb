#include "train/data/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/byte_alphabet.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;

Json small(const std::string& name) {
  static const Json kGolden =
      Json::parse(MappedFile(XT_SOURCE_DIR "/tests/golden/tokenizers.json").text());
  return kGolden["small"][name]["tokenizer"];
}

std::string why(const Json& json) {
  const std::string reason = rejection([&] { parse_tokenizer_json(json.dump(), "t.json"); });
  CHECK(reason.find('\n') == std::string::npos);
  return reason;
}

std::string why_with(const std::string& pointer, const Json& value) {
  Json json = small("qwen2");
  json[Json::json_pointer(pointer)] = value;
  return why(json);
}

TEST_CASE("tokenizer_json: read and written, a file says the same; merges have two notations") {
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    const Json original = small(name);
    const BpeTokenizer read = parse_tokenizer_json(original.dump(), name);
    const std::string pairs = to_tokenizer_json(read);
    Json strings = original;
    for (Json& merge : strings["model"]["merges"]) {
      merge = merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
    }
    for (const char* key : {"added_tokens", "normalizer", "model"}) {
      INFO(name << ' ' << key);
      CHECK(Json::parse(pairs)[key] == original[key]);
    }
    CHECK(to_tokenizer_json(parse_tokenizer_json(strings.dump(), name)) == pairs);
    CHECK(to_tokenizer_json(parse_tokenizer_json(pairs, name)) == pairs);
  }
}

TEST_CASE("tokenizer_json: vocab.json and merges.txt are read with either kind of line end") {
  const TemporaryFolder folder;
  const Json model = small("gpt2")["model"];
  std::string merges[2];
  for (int crlf = 0; crlf < 2; ++crlf) {
    merges[crlf] = crlf ? "#version: 0.2\r\n" : "#version: 0.2\n";
    for (const Json& merge : model["merges"]) {
      merges[crlf] += merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
      merges[crlf] += crlf ? "\r\n" : "\n";
    }
  }
  const std::string vocab = folder.write("vocab.json", model["vocab"].dump());
  const auto load = [&](const std::string& text) {
    return load_vocab_and_merges(vocab, folder.write("merges.txt", text), kGpt2Pattern,
                                 {{0, "<|endoftext|>"}, {1, "<|im_start|>"}});
  };
  CHECK(load(merges[0]).parts().model.merges() == load(merges[1]).parts().model.merges());
  CHECK(Json::parse(to_tokenizer_json(load(merges[0])))["model"] == model);
  CHECK(rejection([&] {
          load("a b c\n");
        }).ends_with("merge 0 must be two tokens with a space between; got \"a b c\""));
}

TEST_CASE("tokenizer_json: damaged files are refused in one line") {
  const auto why_text = [](std::string_view text) {
    return rejection([&] { parse_tokenizer_json(text, "t.json"); });
  };
  CHECK(why_text("") == "t.json: is not JSON at byte 1 of 0; the file is damaged or cut short");
  CHECK(why_text("[]") == "t.json: must be a JSON object");
  CHECK(why_text("{\"a\\n\":1,\"a\\n\":2}") == "t.json: the key \"a\\n\" comes twice");
  CHECK(why_text("{\"a\":1,\"a\":2}") == "t.json: the key \"a\" comes twice");
  CHECK(why_text(std::string(100000, '[')) == "t.json: is nested more than 32 levels deep");
  const std::string whole = small("gpt2").dump();
  for (size_t cut = 0; cut < whole.size(); cut += 997) {
    CHECK(why_text(whole.substr(0, cut)).starts_with("t.json: is not JSON at byte"));
  }
}

TEST_CASE("tokenizer_json: what would change ids and is not implemented is refused by name") {
  CHECK(why(small("qwen2")) == "accepted");
  const auto names = [](const std::string& pointer, const Json& value, const std::string& part) {
    INFO(pointer << ": " << why_with(pointer, value));
    CHECK(why_with(pointer, value).starts_with("t.json: "));
    CHECK(why_with(pointer, value).find(part) != std::string::npos);
  };
  names("/model/type", "Unigram", "\"model\" must be of type BPE; got \"Unigram\"");
  names("/model/dropout", 0.1, "\"dropout\" is 0.1, which is not supported");
  names("/model/byte_fallback", true, "\"byte_fallback\" is true");
  names("/model/continuing_subword_prefix", "##", "\"continuing_subword_prefix\"");
  names("/model/ignore_merges", 1, "\"ignore_merges\" must be true or false");
  names("/normalizer", {{"type", "Lowercase"}}, "\"normalizer\" must be null or NFC");
  names("/decoder", {{"type", "WordPiece"}}, "\"decoder\" must be ByteLevel");
  names("/pre_tokenizer", {{"type", "Whitespace"}}, "\"pre_tokenizer\" must be ByteLevel");
  names("/pre_tokenizer/pretokenizers/0/behavior", "Removed", "must be Isolated; got \"Removed\"");
  names("/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, "must be a Regex");
  names("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", "cannot be compiled");
  names("/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "\"add_prefix_space\" is true");
  names("/pre_tokenizer/pretokenizers/1/use_regex", true, "\"use_regex\"");
  names("/added_tokens/0/lstrip", true, "added token \"<|endoftext|>\": \"lstrip\" is true");
  names("/added_tokens/0/special", "yes", "\"special\" must be true or false");
}

TEST_CASE("tokenizer_json: vocabularies and merges that do not fit together are refused") {
  CHECK(why_with("/model/vocab", Json::array()) ==
        "t.json: the vocabulary must be an object of tokens and their ids");
  CHECK(why_with("/model/vocab/a", -1) ==
        "t.json: the id of token \"a\" must be an integer in 0..16777215; got -1");
  CHECK(why_with("/model/vocab/a", 1.5).ends_with("got 1.5"));
  CHECK(why_with("/model/vocab/a", uint64_t{1} << 63).ends_with("got 9223372036854775808"));
  CHECK(why_with("/model/vocab/a", 67).starts_with("t.json: id 67 has two tokens"));
  CHECK(why_with("/model/vocab/\u4eca", 5000) ==
        "t.json: token \"\u4eca\" is not spelt in the alphabet of byte-level tokenizers");
  CHECK(why_with("/model/merges", 3) == "t.json: \"merges\" must be a list");
  CHECK(why_with("/model/merges/2", "ab") ==
        "t.json: merge 2 must be two tokens with a space between; got \"ab\"");
  CHECK(why_with("/model/merges/2", {"a"}) ==
        "t.json: merge 2 must be \"a b\" or [\"a\",\"b\"]; got [\"a\"]");
  CHECK(why_with("/model/merges/2", "a zzz") ==
        "t.json: merge 2 joins \"zzz\", which is not in the vocabulary");
  CHECK(why_with("/model/merges/2", "~ ~") == "t.json: merge 2 gives \"~~\", which is no token");
  CHECK(why_with("/added_tokens/0/id", "x").ends_with("got \"x\""));
}

TEST_CASE("byte_alphabet: every byte has a spelling of its own and comes back") {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  CHECK(bytes_of_spelling(spell_bytes(bytes)) == bytes);
  CHECK(spell_bytes(" a\n\u00e9") == "\u0120a\u010a\u00c3\u00a9");
  CHECK(!bytes_of_spelling(" "));
  CHECK(!bytes_of_spelling("\u4eca"));
  CHECK(!bytes_of_spelling("\xC4"));
}

}  // namespace
}  // namespace xtrain
