#include "train/data/token_vocabulary.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

using namespace xtrain;

namespace {

Vocabulary chars(const std::string& text) {
  CharacterSet set;
  set.add(text, "text");
  return Vocabulary::chars(set);
}

// A token file beside the tokenizer that made it.
MappedFile tokens_of(const TemporaryFolder& folder, const Vocabulary& vocabulary) {
  folder.write("vocabulary.json", vocabulary.to_json());
  folder.write("manifest.json",
               R"({"kind": "xtrain tokens", "plan": {"tokenizer_file": "vocabulary.json"}})");
  return MappedFile(folder.write("train.bin", std::string(20, '\0')));
}

}  // namespace

TEST_CASE("token files are known by the tokenizer beside them, or else by their meta", "[data]") {
  const TemporaryFolder folder, plain;
  std::vector<MappedFile> files;
  files.push_back(tokens_of(folder, chars("abc")));
  CHECK(token_vocabulary(files)->to_json() == chars("abc").to_json());
  folder.write("meta.json", R"({"vocab_size": 2, "itos": ["x", "y"]})");
  CHECK(token_vocabulary(files)->to_json() == chars("abc").to_json());
  files.clear();
  files.emplace_back(plain.write("train.bin", std::string(20, '\0')));
  CHECK_FALSE(token_vocabulary(files).has_value());
  plain.write("meta.json", R"({"vocab_size": 2, "itos": ["x", "y"]})");
  CHECK(token_vocabulary(files)->to_json() == chars("xy").to_json());
}

TEST_CASE("a damaged manifest or another tokenizer beside token files is refused", "[data]") {
  const TemporaryFolder folder;
  std::vector<MappedFile> files;
  files.push_back(tokens_of(folder, chars("abc")));
  folder.write("manifest.json", R"({"kind": "xtrain tokens", "plan": {
      "tokenizer_file": "vocabulary.json", "tokenizer_xxh3": "0123456789abcdef"}})");
  CHECK(rejection([&] { token_vocabulary(files); }) == folder.file("vocabulary.json") +
                                                           ": is not the tokenizer that made " +
                                                           folder.file("train.bin"));
  folder.write("manifest.json", R"({"kind": "xtrain tok)");
  CHECK(rejection([&] { token_vocabulary(files); }).find("manifest.json: is not JSON") !=
        std::string::npos);
}

TEST_CASE("token files of another tokenizer than the model's are refused by name", "[data]") {
  const TemporaryFolder folder;
  const MappedFile tokens = tokens_of(folder, chars("abc"));
  const auto refused = [&](const Vocabulary& of_model) {
    return rejection([&] { check_token_vocabulary(std::vector{&tokens}, of_model); });
  };
  CHECK(refused(chars("abd")) == folder.file("train.bin") +
                                     ": its ids are those of another tokenizer than the model's; "
                                     "tokenize the text with the model's own");
  CHECK(refused(Vocabulary::bytes()) == refused(chars("abd")));
  CHECK_NOTHROW(check_token_vocabulary(std::vector{&tokens}, chars("cab")));
  CHECK_NOTHROW(check_token_vocabulary(std::vector{&tokens}, Vocabulary::ids(3)));
  // Of several folders each is looked into; of one with many files once.
  const TemporaryFolder other;
  const MappedFile others = tokens_of(other, chars("xyz"));
  const auto all_refused = [&](const std::vector<const MappedFile*>& files) {
    return rejection([&] { check_token_vocabulary(files, chars("abc")); });
  };
  CHECK(
      all_refused({&tokens, &tokens, &others}).starts_with(other.file("train.bin") + ": its ids"));
  const MappedFile more(folder.write("more.bin", std::string(20, '\0')));
  CHECK(all_refused({&tokens, &more}) == "accepted");
  other.write("vocabulary.json", chars("abc").to_json());
  CHECK(all_refused({&tokens, &others}) == "accepted");
}
