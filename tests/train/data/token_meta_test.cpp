#include "train/data/token_meta.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/open_data.h"
#include "train/data/token_bytes.h"

namespace xtrain {
namespace {

using namespace std::string_literals;

std::string why(const std::string& json) {
  return rejection([&] { parse_nanogpt_meta(json, "meta.json"); });
}

Data open(const TemporaryFolder& folder, int64_t vocab_size,
          const std::vector<std::string>& files = {"train.bin"}) {
  DataConfig config;
  for (const std::string& file : files) config.train_files.push_back(folder.file(file));
  return open_data(config, vocab_size);
}

TEST_CASE("token meta: characters come from itos or stoi, in each spelling") {
  for (
      const std::string json :
      {R"({"vocab_size": 3, "itos": ["\n", "a", "\u00e9"]})",
       R"({"vocab_size": 3, "itos": {"2": "\u00e9", "0": "\n", "1": "a"}})",
       R"({"vocab_size": 3, "stoi": {"a": 1, "\u00e9": 2, "\n": 0}})",
       R"({"vocab_size": 3, "itos": ["\n", "a", "\u00e9"], "stoi": {"\n": 0, "a": 1, "\u00e9": 2}})"}) {
    INFO(json);
    const Vocabulary vocabulary = parse_nanogpt_meta(json, "meta.json");
    CHECK(vocabulary.kind() == Vocabulary::Kind::chars);
    CHECK(vocabulary.encode("\u00e9a\n") == std::vector<int32_t>{2, 1, 0});
  }
  const Vocabulary ids = parse_nanogpt_meta(R"({"vocab_size": 50257})", "meta.json");
  CHECK(ids.kind() == Vocabulary::Kind::ids);
  CHECK(ids.size() == 50257);
}

TEST_CASE("token meta: what does not fit together is rejected") {
  CHECK(why("{") ==
        "meta.json: must hold a \"vocab_size\" above 0, in a JSON object or a dictionary");
  CHECK(why("[]") == why("{"));
  CHECK(why(R"({"itos": ["a"]})") == why("{"));
  CHECK(why(R"({"vocab_size": 0})") == why("{"));
  CHECK(why(R"({"vocab_size": 2.5})") == why("{"));
  CHECK(why(R"({"vocab_size": 99999999999})").starts_with("vocabulary: size must lie in 1.."));
  CHECK(why(R"({"vocab_size": 3, "itos": ["a", "b"]})") ==
        "meta.json: vocab_size is 3, but \"itos\" has 2");
  CHECK(why(R"({"vocab_size": 1, "stoi": {"a": 0, "b": 1}})") ==
        "meta.json: vocab_size is 1, but \"stoi\" has 2");
  CHECK(why(R"({"vocab_size": 2, "stoi": {"a": 0, "b": 2}})") ==
        "meta.json: ids must lie in 0..1; got 2");
  CHECK(why(R"({"vocab_size": 2, "stoi": {"a": 0, "b": "1"}})") ==
        "meta.json: ids must lie in 0..1; got \"1\"");
  CHECK(why(R"({"vocab_size": 2, "stoi": {"a": 0, "b": 0}})") ==
        "meta.json: id 0 must stand for one character; got \"a\" and \"b\"");
  CHECK(why(R"({"vocab_size": 2, "itos": {"0": "a", "x": "b"}})") ==
        "meta.json: the keys of \"itos\" must be ids; got \"x\"");
  CHECK(why(R"({"vocab_size": 2, "itos": {"0": "a", "-1": "b"}})") ==
        "meta.json: ids must lie in 0..1; got -1");
  CHECK(why(R"({"vocab_size": 1, "itos": [7]})") ==
        "meta.json: \"itos\" must hold characters; got 7");
  CHECK(why(R"({"vocab_size": 1, "itos": "a"})") ==
        "meta.json: \"itos\" must be a list, or an object from id to character");
  CHECK(why(R"({"vocab_size": 1, "stoi": ["a"]})") ==
        "meta.json: \"stoi\" must be an object from character to id");
  CHECK(why(R"({"vocab_size": 2, "itos": ["a", ""]})") ==
        "meta.json: id 1 must stand for one character; got \"\" and \"\"");
  CHECK(why(R"({"vocab_size": 2, "itos": ["a", "b"], "stoi": {"a": 1, "b": 0}})") ==
        "meta.json: id 1 must stand for one character; got \"b\" and \"a\"");
  CHECK(why(R"({"vocab_size": 2, "itos": ["b", "a"]})")
            .starts_with("meta.json: tokens must be single characters in code point order"));
}

TEST_CASE("token meta: a meta.json gives raw files their text, and is the vocabulary") {
  const TemporaryFolder folder;
  folder.write("train.bin", packed(std::vector<uint16_t>{1, 0, 2, 2, 1}));
  folder.write("meta.json", R"({"vocab_size": 3, "itos": ["a", "b", "c"]})");
  for (const int64_t vocab_size : {0, 3, 8}) {
    const Data data = open(folder, vocab_size);
    std::vector<int32_t> ids(5);
    data.train->read(0, ids);
    CHECK(data.vocabulary->decode(ids) == "baccb");
    CHECK(data.vocabulary->size() == 3);
  }
  CHECK(rejection([&] { open(folder, 2); }) ==
        "the model's vocab_size must be at least that of the data, 3 (chars); got 2");
  folder.write("train.bin", packed(std::vector<uint16_t>{1, 0, 3}));
  CHECK(rejection([&] { open(folder, 0); }) ==
        folder.file("train.bin") + ": token 2 has id 3; ids must lie in 0..2 (vocab_size 3)");
}

// {"vocab_size": 3, "itos": {0: "a", 1: "b", 2: "c"}} as Python's pickle writes it.
const std::string kPickle =
    "\x80\x04\x95\x31\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\nvocab_size\x94K\x03\x8c\x04itos\x94}"
    "\x94(K\x00\x8c\x01"
    "a\x94K\x01\x8c\x01"
    "b\x94K\x02\x8c\x01"
    "c\x94uu."s;

TEST_CASE("token meta: a meta.pkl gives raw files their text, unless a meta.json does") {
  const TemporaryFolder folder;
  folder.write("train.bin", packed(std::vector<uint16_t>{1, 0, 2, 2, 1}));
  const std::string pickle = folder.write("meta.pkl", kPickle);
  const auto decoded = [&] {
    const Data data = open(folder, 0);
    std::vector<int32_t> ids(5);
    data.train->read(0, ids);
    return data.vocabulary->decode(ids);
  };
  CHECK(decoded() == "baccb");
  folder.write("meta.json", R"({"vocab_size": 3, "itos": ["x", "y", "z"]})");
  CHECK(decoded() == "yxzzy");
  std::filesystem::remove(folder.file("meta.json"));
  folder.write("meta.pkl", kPickle.substr(0, 40));
  CHECK(
      rejection([&] { open(folder, 3); }).starts_with(pickle + ": is a pickle that is cut short"));
  folder.write("meta.pkl", "\x80\x04N.");
  CHECK(rejection([&] { open(folder, 3); }) ==
        pickle + ": must hold a \"vocab_size\" above 0, in a JSON object or a dictionary");
}

TEST_CASE("token meta: files that declare different vocabularies are rejected") {
  const TemporaryFolder folder;
  folder.write("train.bin", packed(std::vector<uint16_t>{1, 0, 2}));
  folder.write("meta.json", R"({"vocab_size": 3, "itos": ["a", "b", "c"]})");
  folder.write("more.bin", llmq_header({2, 4, 3, 50257, 0}) + packed(std::vector<int32_t>(3)));
  CHECK(rejection([&] {
          open(folder, 0, {"train.bin", "more.bin"});
        }) == folder.file("more.bin") + " and " + folder.file("train.bin") +
                  " must have the same vocabulary; what they say of it differs");
}

TEST_CASE("token meta: the header's number of ids serves where the model gives none") {
  const TemporaryFolder folder;
  const std::vector<int32_t> ids{0, 9, 10};
  folder.write("a.bin", llmq_header({2, 4, 3, 10, 0}) + packed(ids));
  CHECK(open(folder, 16, {"a.bin"}).vocabulary->size() == 16);  // markers may lie beyond
  CHECK(rejection([&] { open(folder, 0, {"a.bin"}); }) ==
        folder.file("a.bin") + ": token 2 has id 10; ids must lie in 0..9 (vocab_size 10)");
  CHECK(rejection([&] { open(folder, 9, {"a.bin"}); }) ==
        "the model's vocab_size must be at least that of the data, 10 (ids); got 9");
}

}  // namespace
}  // namespace xtrain
