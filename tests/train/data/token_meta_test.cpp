#include "train/data/token_meta.h"

#include <cstdint>
#include <cstdlib>
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
  CHECK(why("{") == "meta.json: must be a JSON object with a \"vocab_size\" above 0");
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

TEST_CASE("token meta: a meta.pkl alone is an error that names the converter") {
  const TemporaryFolder folder;
  folder.write("train.bin", packed(std::vector<uint16_t>{1, 0, 2}));
  const std::string pickle = folder.write("meta.pkl", "(dp0\nVvocab_size\np1\nI3\ns.");
  CHECK(rejection([&] { open(folder, 3); }) ==
        pickle + ": says what the ids of " + folder.file("train.bin") +
            " mean, but a Python pickle is not read; make a meta.json of it: python3 "
            "tools/nanogpt_meta.py " +
            pickle);
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

// Protocol 0 is text.
TEST_CASE("token meta: the converter reads plain pickles and refuses those that call") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) {
    WARN("skipped: no python3");
    return;
  }
  const TemporaryFolder folder;
  const auto convert = [&](const std::string& pickle) {
    folder.write("meta.pkl", pickle);
    const std::string line = "python3 '" XT_SOURCE_DIR "/tools/nanogpt_meta.py' '" +
                             folder.file("meta.pkl") + "' >'" + folder.file("out") + "' 2>'" +
                             folder.file("err") + "'";
    return std::system(line.c_str()) == 0;
  };
  // {"vocab_size": 2, "itos": {0: "a", 1: "b"}, "stoi": {"a": 0, "b": 1}}
  const std::string plain =
      "(dp0\nVvocab_size\np1\nI2\nsVitos\n(dI0\nVa\nsI1\nVb\nssVstoi\n(dVa\nI0\nsVb\nI1\nss.";
  REQUIRE(convert(plain));
  const Vocabulary chars = parse_nanogpt_meta(folder.read("meta.json"), "meta.json");
  CHECK(chars.encode("ba") == std::vector<int32_t>{1, 0});

  folder.write("meta.json", "kept");
  CHECK_FALSE(convert("cos\nsystem\n(S'touch " + folder.file("called") + "'\ntR."));
  CHECK(folder.read("err").find("it asks for os.system; only plain data is read") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("called")));
  CHECK_FALSE(convert("no pickle"));
  CHECK_FALSE(convert("(dp0\nVvocab_size\np1\nI3\nsVitos\n(dI0\nVa\nss."));
  CHECK(folder.read("err").find("itos must have the ids 0..2") != std::string::npos);
  CHECK(folder.read("meta.json") == "kept");
}

}  // namespace
}  // namespace xtrain
