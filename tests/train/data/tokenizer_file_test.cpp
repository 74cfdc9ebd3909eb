#include "train/data/tokenizer_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/byte_alphabet.h"
#include "train/data/small_tokenizers.h"

namespace xtrain {
namespace {

std::vector<int32_t> ids(const TokenizerFile& tokenizer, std::string_view text) {
  return tokenizer.vocabulary->encode(text);
}

// Hugging Face's pair of files with the given tokens behind the bytes.
void write_pair(const TemporaryFolder& folder, const std::vector<std::string>& more,
                const std::string& merges) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[spell_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  }
  for (size_t i = 0; i < more.size(); ++i) vocab[more[i]] = 256 + i;
  folder.write("vocab.json", vocab.dump());
  folder.write("merges.txt", merges);
}

TEST_CASE("tokenizer_file: bytes, a tokenizer.json, a vocabulary and a folder of either") {
  const TemporaryFolder folder;
  CHECK(open_tokenizer("bytes").vocabulary->kind() == Vocabulary::Kind::bytes);
  CHECK(open_tokenizer("bytes").name == "vocabulary.json");
  const std::string json = small_tokenizer_json("gpt2");
  const std::string path = folder.write("my.json", json);
  const TokenizerFile file = open_tokenizer(path);
  CHECK(file.name == "tokenizer.json");
  CHECK(file.content == json);
  folder.write("tokenizer.json", json);
  CHECK(open_tokenizer(folder.path.string()).content == json);
  const TemporaryFolder chars;
  CharacterSet set;
  set.add("hello", "");
  chars.write("vocab.json", Vocabulary::chars(set).to_json());
  CHECK(ids(open_tokenizer(chars.path.string()), "hello") == std::vector<int32_t>{1, 0, 2, 2, 3});
  std::filesystem::rename(chars.file("vocab.json"), chars.file("vocabulary.json"));
  CHECK(ids(open_tokenizer(chars.path.string()), "lo") == std::vector<int32_t>{2, 3});
  CHECK(ids(open_tokenizer(chars.file("vocabulary.json")), "o") == std::vector<int32_t>{3});
}

TEST_CASE("tokenizer_file: vocab.json and merges.txt, whose pattern the config tells") {
  const TemporaryFolder folder;
  write_pair(folder, {"ab", "<|endoftext|>"}, "#version: 0.2\na b\n");
  const TokenizerFile gpt2 = open_tokenizer(folder.path.string());
  CHECK(gpt2.name == "tokenizer.json");
  CHECK(gpt2.vocabulary->tokenizer()->parts().pre_tokenizer.pattern() == kGpt2Pattern);
  CHECK(ids(gpt2, "cab") == std::vector<int32_t>{99, 256});
  CHECK(find_end_token(gpt2, "") == 257);
  CHECK(ids(open_tokenizer(folder.file("vocab.json")), "ab<|endoftext|>") ==
        std::vector<int32_t>{256, 257});
  // The copy that is written is the same tokenizer.
  const TemporaryFolder copy;
  copy.write("tokenizer.json", gpt2.content);
  CHECK(ids(open_tokenizer(copy.path.string()), "ab<|endoftext|>") ==
        std::vector<int32_t>{256, 257});

  folder.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2TokenizerFast",
      "eos_token": {"content": "<|im_end|>"},
      "added_tokens_decoder": {"258": {"content": "<|im_end|>", "special": true}}})");
  const TokenizerFile qwen2 = open_tokenizer(folder.path.string());
  CHECK(qwen2.vocabulary->tokenizer()->parts().pre_tokenizer.pattern() == kQwen2Pattern);
  CHECK(qwen2.vocabulary->tokenizer()->parts().nfc);
  CHECK(qwen2.end_token == "<|im_end|>");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
  CHECK(rejection([&] { open_tokenizer(folder.path.string()); }) ==
        folder.path.string() +
            ": the pattern of tokenizer_class \"T5Tokenizer\" is not known; it "
            "must be GPT2Tokenizer or Qwen2Tokenizer, or there must be a "
            "tokenizer.json");
}

TEST_CASE("tokenizer_file: the end of text is found or named") {
  const TemporaryFolder folder;
  write_pair(folder, {"ab", "<|end_of_text|>", "<eos>"}, "a b\n");
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<eos>", "added_tokens_decoder": {
                   "257": {"content": "<|end_of_text|>"}, "258": {"content": "<eos>"}}})");
  const TokenizerFile tokenizer = open_tokenizer(folder.path.string());
  CHECK(find_end_token(tokenizer, "") == 257);
  CHECK(find_end_token(tokenizer, "<eos>") == 258);
  CHECK(find_end_token(tokenizer, "ab") == 256);
  CHECK(find_end_token(tokenizer, "97") == 97);
  CHECK(find_end_token(tokenizer, "none") == -1);
  for (const std::string wanted : {"<none>", "259", "-1", "1x"}) {
    CHECK(rejection([&] { find_end_token(tokenizer, wanted); }) ==
          "the end-of-text token must be \"none\", one of the tokenizer's tokens or an id in "
          "0..258; got \"" +
              wanted + "\"");
  }
  write_pair(folder, {"ab", "<eos>"}, "a b\n");
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<eos>", "added_tokens_decoder": {"257": {"content": "<eos>"}}})");
  CHECK(find_end_token(open_tokenizer(folder.path.string()), "") == 257);
  CHECK(find_end_token(open_tokenizer("bytes"), "") == -1);
  CHECK(find_end_token(open_tokenizer("bytes"), "0") == 0);
}

TEST_CASE("tokenizer_file: what is no tokenizer is refused by name") {
  const TemporaryFolder folder;
  const auto why = [](const std::string& path) { return rejection([&] { open_tokenizer(path); }); };
  CHECK(why(folder.file("none")) ==
        folder.file("none") + ": cannot be opened: No such file or directory");
  CHECK(why(folder.path.string()) ==
        folder.path.string() + ": must hold a vocabulary.json, a tokenizer.json or a vocab.json");
  CHECK(why(folder.write("a.json", R"({"kind": "ids", "size": 3})")) ==
        folder.file("a.json") + ": does not say what text its ids stand for");
  CHECK(why(folder.write("b.json", "{")) ==
        folder.file("b.json") + ": is not JSON at byte 2 of 1; the file is damaged or cut short");
  write_pair(folder, {}, "");
  std::filesystem::remove(folder.file("merges.txt"));
  CHECK(why(folder.path.string()) ==
        folder.file("merges.txt") + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace xtrain
