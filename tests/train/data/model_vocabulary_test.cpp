// Vocabularies beside models, and the files that other programs read them from.

#include "train/data/model_vocabulary.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/mapped_file.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/exported_tokenizer.h"

using namespace xtrain;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

Vocabulary chars(const std::string& text) {
  Json json{{"kind", "chars"}, {"size", 0}, {"tokens", Json::array()}};
  for (const char c : text) json["tokens"].push_back(std::string(1, c));
  json["size"] = json["tokens"].size();
  return Vocabulary::from_json(json.dump(), "chars");
}

std::string small_tokenizer() {
  const Json golden = Json::parse(MappedFile(XT_SOURCE_DIR "/tests/golden/tokenizers.json").text());
  return golden["small"]["qwen2"]["tokenizer"].dump();
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a checkpoint's vocabulary comes before a tokenizer", "[model_vocabulary]") {
  const TemporaryFolder folder;
  folder.write("vocabulary.json", chars("abc").to_json());
  folder.write("tokenizer.json", small_tokenizer());
  const ModelVocabulary found = model_vocabulary(folder.path.string(), 5);
  CHECK(found.file == folder.file("vocabulary.json"));
  CHECK(found.vocabulary.encode("cab") == std::vector<int32_t>{2, 0, 1});
}

TEST_CASE("a folder without a vocabulary has ids alone", "[model_vocabulary]") {
  const TemporaryFolder folder;
  const ModelVocabulary found = model_vocabulary(folder.path.string(), 7);
  CHECK(found.file == "");
  CHECK(found.vocabulary.kind() == Vocabulary::Kind::ids);
  CHECK(found.vocabulary.size() == 7);
}

TEST_CASE("a vocabulary larger than the model is refused naming both", "[model_vocabulary]") {
  const TemporaryFolder folder;
  folder.write("vocabulary.json", chars("abc").to_json());
  CHECK(rejection([&] { model_vocabulary(folder.path.string(), 2); }) ==
        folder.file("vocabulary.json") + ": holds 3 tokens; the model's vocab_size is 2");
  folder.write("vocabulary.json", "{");
  CHECK(mentions(rejection([&] { model_vocabulary(folder.path.string(), 9); }), "vocabulary.json"));
}

TEST_CASE("older folders have vocab.json and merges.txt", "[model_vocabulary]") {
  const TemporaryFolder folder;
  Json vocab = Json::parse(exported_tokenizer(Vocabulary::bytes(), 1).at("tokenizer.json"))
                   .at("model")
                   .at("vocab");
  vocab["th"] = 256;
  vocab["the"] = 257;
  vocab["<|endoftext|>"] = 258;
  folder.write("vocab.json", vocab.dump());
  folder.write("merges.txt", "#version: 0.2\nt h\nth e\n");
  const auto encode = [&](const std::string& text) {
    return model_vocabulary(folder.path.string(), 300).vocabulary.encode(text);
  };
  CHECK(encode("the<|endoftext|>th") == std::vector<int32_t>{257, 258, 256});
  // Qwen's pattern cuts digits one by one, GPT-2's does not.
  vocab["11"] = 259;
  folder.write("vocab.json", vocab.dump());
  folder.write("merges.txt", "t h\nth e\n1 1\n");
  CHECK(encode("11") == std::vector<int32_t>{259});
  folder.write("config.json", R"({"model_type": "qwen2"})");
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"260": {"content": "<|im_end|>", "special": true}}})");
  CHECK(encode("11<|im_end|>") == std::vector<int32_t>{49, 49, 260});
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  CHECK(mentions(rejection([&] { encode(""); }), "added_tokens_decoder: x must be an id"));
}

TEST_CASE("GPT-2's own files are read", "[model_vocabulary]") {
  const fs::path folder = fs::path(XT_SOURCE_DIR) / "../shared/data/gpt2";
  if (!fs::exists(folder / "vocab.json")) {
    WARN("skipped: ../shared/data is not there");
    return;
  }
  const Vocabulary gpt2 = model_vocabulary(folder.string(), 50257).vocabulary;
  CHECK(gpt2.size() == 50257);
  CHECK(gpt2.encode("Hello world<|endoftext|>") == std::vector<int32_t>{15496, 995, 50256});
  CHECK(end_of_text_id(gpt2) == 50256);
}

TEST_CASE("bytes as a tokenizer.json: an id is a byte's value", "[exported_tokenizer]") {
  const auto files = exported_tokenizer(Vocabulary::bytes(), 64);
  const Json json = Json::parse(files.at("tokenizer.json"));
  CHECK(json["model"]["vocab"].size() == 256);
  CHECK(json["model"]["vocab"]["A"] == 65);
  CHECK(json["model"]["vocab"]["\u0120"] == 32);
  CHECK(json["model"]["merges"].empty());
  CHECK(json["pre_tokenizer"]["use_regex"] == false);
  CHECK(Json::parse(files.at("tokenizer_config.json"))["model_max_length"] == 64);
  CHECK(byte_or_char_vocabulary(files.at("tokenizer.json"))->kind() == Vocabulary::Kind::bytes);
  CHECK(byte_or_char_vocabulary(json.dump())->kind() == Vocabulary::Kind::bytes);
}

TEST_CASE("characters as a tokenizer.json: words of one character", "[exported_tokenizer]") {
  const Vocabulary vocabulary = chars("\n \"abz");
  const std::string json = exported_tokenizer(vocabulary, 64).at("tokenizer.json");
  CHECK(Json::parse(json)["model"]["vocab"] ==
        Json::parse(R"({"\n": 0, " ": 1, "\"": 2, "a": 3, "b": 4, "z": 5})"));
  const auto back = byte_or_char_vocabulary(Json::parse(json).dump());
  REQUIRE(back.has_value());
  CHECK(back->to_json() == vocabulary.to_json());
  Json other = Json::parse(json);
  other["pre_tokenizer"] = nullptr;
  CHECK_FALSE(byte_or_char_vocabulary(other.dump()).has_value());
  other = Json::parse(json);
  other["model"]["vocab"]["ab"] = 6;
  CHECK_FALSE(byte_or_char_vocabulary(other.dump()).has_value());
  CHECK_FALSE(byte_or_char_vocabulary("{").has_value());
  CHECK_FALSE(byte_or_char_vocabulary(R"({"model": 3})").has_value());
}

TEST_CASE("a byte-pair tokenizer is written as it is, plain ids not at all",
          "[exported_tokenizer]") {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", small_tokenizer());
  const Vocabulary vocabulary = model_vocabulary(folder.path.string(), 10000).vocabulary;
  const auto files = exported_tokenizer(vocabulary, 64);
  CHECK(files.at("tokenizer.json") == vocabulary.to_json());
  CHECK_FALSE(byte_or_char_vocabulary(files.at("tokenizer.json")).has_value());
  CHECK(exported_tokenizer(Vocabulary::ids(9), 64).empty());
  CHECK_FALSE(end_of_text_id(Vocabulary::bytes()).has_value());
}
