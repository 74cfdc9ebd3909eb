#include "train/data/tokenize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/checksum.h"
#include "train/data/open_data.h"
#include "train/data/small_tokenizers.h"
#include "train/data/token_bytes.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::atomic<bool> kGoOn{false};

TokenizeResult run(const TokenizerFile& tokenizer, const TokenizeOptions& options) {
  return tokenize(tokenizer, options, kGoOn, [](const TokenizeProgress&) {});
}

std::string why(const TokenizerFile& tokenizer, const TokenizeOptions& options) {
  return rejection([&] { run(tokenizer, options); });
}

// Every file of a folder by name.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = MappedFile(entry.path().string()).text();
  }
  return files;
}

// Ids behind the header of a shard, or of a raw file.
std::vector<int32_t> ids_of(const std::string& content, size_t header = 1024) {
  std::vector<int32_t> ids;
  for (size_t i = header; i + 1 < content.size(); i += 2) {
    ids.push_back(static_cast<unsigned char>(content[i]) |
                  static_cast<unsigned char>(content[i + 1]) << 8);
  }
  return ids;
}

struct Case {
  TemporaryFolder folder;
  TokenizeOptions options;

  Case() {
    options.out_dir = folder.file("out");
    options.name = "t";
  }
  std::string out(const std::string& name) const { return folder.read("out/" + name); }
};

using Ids = std::vector<int32_t>;

TEST_CASE("tokenize: llm.c's shards have the end token before each document, nanoGPT's behind") {
  Case c;
  c.options.inputs = {c.folder.write("a", "hi"), c.folder.write("b", ""),
                      c.folder.write("c", "you")};
  c.options.end_token = 0;
  const TokenizerFile bytes = open_tokenizer("bytes");
  const TokenizeResult result = run(bytes, c.options);
  CHECK(ids_of(c.out("t_train_000000.bin")) == Ids{0, 'h', 'i', 0, 0, 'y', 'o', 'u'});
  CHECK(result.train.documents == 3);
  CHECK(result.train.tokens == 8);
  CHECK(result.train.text_bytes == 5);
  CHECK(result.val.documents == 0);
  c.options.layout = TokenLayout::raw_u16;
  c.options.overwrite = true;
  run(bytes, c.options);
  CHECK(ids_of(c.out("train.bin"), 0) == Ids{'h', 'i', 0, 0, 'y', 'o', 'u', 0});
  CHECK(contents(c.options.out_dir).size() == 3);  // train.bin, vocabulary.json, manifest.json
  c.options.end_token = -1;
  run(bytes, c.options);
  CHECK(ids_of(c.out("train.bin"), 0) == Ids{'h', 'i', 'y', 'o', 'u'});
}

TEST_CASE("tokenize: the manifest counts documents, tokens and bytes, and hashes the files") {
  Case c;
  const auto tokenizer = open_tokenizer(c.folder.write("t.json", small_tokenizer_json("gpt2")));
  c.options.inputs = {c.folder.write("a.jsonl", "{\"text\": \"ab\\u00e9\"}\n{\"text\": \"c\"}\n")};
  c.options.val_inputs = {c.folder.write("b.txt", "xyz")};
  c.options.end_token = find_end_token(tokenizer, "");
  REQUIRE(c.options.end_token >= 0);
  c.options.shard_tokens = 3;
  run(tokenizer, c.options);
  const Json manifest = Json::parse(c.out("manifest.json"));
  CHECK(manifest["complete"] == true);
  CHECK(manifest["train"]["documents"] == 2);
  CHECK(manifest["train"]["text_bytes"] == 5);
  CHECK(manifest["val"]["documents"] == 1);
  CHECK(manifest["val"]["text_bytes"] == 3);
  CHECK(manifest["plan"]["vocab_size"] == tokenizer.vocabulary->size());
  CHECK(manifest["plan"]["end_token"] == c.options.end_token);
  CHECK(manifest["plan"]["input"][0]["bytes"] == 35);
  for (const char* split : {"train", "val"}) {
    int64_t tokens = 0;
    Ids ids;
    for (const Json& shard : manifest[split]["shards"]) {
      const std::string content = c.out(shard["file"]);
      CHECK(shard["xxh3"] == checksum_of(std::as_bytes(std::span<const char>(content))));
      const Ids more = ids_of(content);
      CHECK(shard["tokens"] == more.size());
      ids.insert(ids.end(), more.begin(), more.end());
      tokens += shard["tokens"].get<int64_t>();
    }
    CHECK(manifest[split]["tokens"] == tokens);
    CHECK(tokenizer.vocabulary->decode(ids) == (split == std::string("train")
                                                    ? "<|endoftext|>ab\u00e9<|endoftext|>c"
                                                    : "<|endoftext|>xyz"));
  }
  CHECK(c.out("tokenizer.json") == tokenizer.content);
  CHECK(manifest["plan"]["tokenizer_xxh3"] ==
        checksum_of(std::as_bytes(std::span<const char>(tokenizer.content))));
}

TEST_CASE("tokenize: markers in the text are plain text unless they are asked for") {
  Case c;
  const auto tokenizer = open_tokenizer(c.folder.write("t.json", small_tokenizer_json("gpt2")));
  c.options.inputs = {c.folder.write("a", "a<|endoftext|>b")};
  run(tokenizer, c.options);
  const int32_t marker = find_end_token(tokenizer, "");
  const Ids plain = ids_of(c.out("t_train_000000.bin"));
  CHECK(std::count(plain.begin(), plain.end(), marker) == 0);
  CHECK(tokenizer.vocabulary->decode(plain) == "a<|endoftext|>b");
  c.options.markers = Markers::tokens;
  c.options.overwrite = true;
  run(tokenizer, c.options);
  CHECK(ids_of(c.out("t_train_000000.bin")) == Ids{plain.front(), marker, plain.back()});
}

// Inputs of every kind, several batches long.
void add_large_inputs(Case& c) {
  std::string lines, marked;
  for (int i = 0; i < 400; ++i) {
    lines += Json{{"text", mixed_text(static_cast<size_t>(i * 7 % 900), static_cast<uint64_t>(i))}}
                 .dump() +
             "\n";
    marked += mixed_text(static_cast<size_t>(i % 5 * 300), static_cast<uint64_t>(i)) +
              (i % 3 == 0 ? "\n<|endoftext|>\n" : "");
  }
  c.options.inputs = {c.folder.write("long.txt", mixed_text(700'000)),
                      c.folder.write("lines.jsonl", lines), c.folder.write("marked.txt", marked)};
  c.options.documents.split_on = "<|endoftext|>";
  c.options.val_fraction = 0.2;
  c.options.shard_tokens = 100'000;
}

TEST_CASE("tokenize: the files are the same on any number of threads, and those of one piece") {
  for (const std::string name : {"gpt2", "qwen2"}) {
    Case c;
    const auto tokenizer = open_tokenizer(c.folder.write("t.json", small_tokenizer_json(name)));
    add_large_inputs(c);
    c.options.end_token = find_end_token(tokenizer, "");
    run(tokenizer, c.options);
    const auto expected = contents(c.options.out_dir);
    CHECK(expected.size() > 6);
    c.options.out_dir = c.folder.file("threads");
    c.options.threads = 3;
    run(tokenizer, c.options);
    CHECK(contents(c.options.out_dir) == expected);

    // The long file alone: ids of many parts are those of the whole.
    Case whole;
    whole.options.inputs = {c.options.inputs[0]};
    whole.options.documents.split_on = "";
    run(tokenizer, whole.options);
    Ids ids;
    const std::string text(MappedFile(c.options.inputs[0]).text());
    BpeEncoder(tokenizer.vocabulary->tokenizer()).encode(text, ids, Markers::plain_text);
    CHECK(ids_of(whole.out("t_train_000000.bin")) == ids);
  }
}

TEST_CASE("tokenize: stopped anywhere and called again, it ends with the same files") {
  Case c;
  const auto tokenizer = open_tokenizer(c.folder.write("t.json", small_tokenizer_json("gpt2")));
  add_large_inputs(c);
  c.options.end_token = find_end_token(tokenizer, "");
  c.options.threads = 2;
  for (const auto layout : {TokenLayout::llmc_u32, TokenLayout::raw_u16}) {
    c.options.layout = layout;
    c.options.out_dir = c.folder.file("whole" + std::string(name_of(layout)));
    run(tokenizer, c.options);
    const auto expected = contents(c.options.out_dir);
    c.options.out_dir = c.folder.file("broken" + std::string(name_of(layout)));
    std::atomic<bool> stop{true};  // after each batch
    int runs = 0;
    while (tokenize(tokenizer, c.options, stop, [](const TokenizeProgress&) {}).stopped) ++runs;
    CHECK(runs >= 3);
    CHECK(contents(c.options.out_dir) == expected);
    const TokenizeResult again = run(tokenizer, c.options);
    CHECK(again.already_complete);
    CHECK(again.train.tokens == Json::parse(expected.at("manifest.json"))["train"]["tokens"]);
    CHECK(contents(c.options.out_dir) == expected);
  }
}

TEST_CASE("tokenize: what a run left that was killed after its manifest is cleared away") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  c.options.inputs = {c.folder.write("a.txt", "one")};
  run(bytes, c.options);
  const auto expected = contents(c.options.out_dir);
  for (const char* const name :
       {"progress.json", "progress.json.partial", "manifest.json.partial"}) {
    c.folder.write(std::string("out/") + name, "{");
  }
  CHECK(run(bytes, c.options).already_complete);
  CHECK(contents(c.options.out_dir) == expected);
}

TEST_CASE("tokenize: a changed input or option is refused by name until the start is anew") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  const std::string a = c.folder.write("a.txt", "one"), b = c.folder.write("b.txt", "two");
  c.options.inputs = {a, b};
  run(bytes, c.options);
  const auto before = contents(c.options.out_dir);
  const auto refused = [&](const TokenizeOptions& options, const TokenizerFile& tokenizer) {
    const std::string message = why(tokenizer, options);
    CHECK(contents(c.options.out_dir) == before);
    const std::string start = c.options.out_dir + ": holds tokens made otherwise: ";
    const std::string end = "; give --overwrite to begin anew, or another folder";
    CHECK(message.starts_with(start));
    CHECK(message.ends_with(end));
    return message.substr(start.size(), message.size() - start.size() - end.size());
  };
  TokenizeOptions other = c.options;
  other.shard_tokens = 5;
  CHECK(refused(other, bytes) == "shard_tokens was 100000000 and is 5");
  other = c.options;
  other.layout = TokenLayout::raw_u16;
  CHECK(refused(other, bytes) == "format was \"llmc_u16\" and is \"raw_u16\"");
  other = c.options;
  other.inputs = {a};
  CHECK(refused(other, bytes) == "input 2 was \"" + b + "\" and is null");
  CharacterSet set;
  set.add("onetw", "");
  CHECK(refused(c.options, describe_tokenizer(Vocabulary::chars(set)))
            .starts_with("tokenizer_xxh3 was "));
  c.folder.write("b.txt", "three");
  CHECK(refused(c.options, bytes) == b + " has changed");
  c.options.overwrite = true;
  c.options.name = "new";
  run(bytes, c.options);
  CHECK(ids_of(c.out("new_train_000000.bin")) == Ids{'o', 'n', 'e', 't', 'h', 'r', 'e', 'e'});
  CHECK_FALSE(fs::exists(c.folder.file("out/t_train_000000.bin")));
}

TEST_CASE("tokenize: files that are not its own are not replaced") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  c.options.inputs = {c.folder.write("a.txt", "one")};
  fs::create_directory(c.options.out_dir);
  c.folder.write("out/vocabulary.json", "mine");
  c.options.overwrite = true;
  CHECK(why(bytes, c.options) == c.folder.file("out/vocabulary.json") +
                                     ": would be replaced, and there is no manifest.json that "
                                     "says what it is; choose another folder");
  fs::remove(c.folder.file("out/vocabulary.json"));
  c.folder.write("out/t_train_000007.bin", "mine");
  c.options.overwrite = false;
  CHECK(why(bytes, c.options).starts_with(c.folder.file("out/t_train_000007.bin")));
  fs::remove(c.folder.file("out/t_train_000007.bin"));
  c.folder.write("out/manifest.json", "{\"version\": 1}");
  CHECK(why(bytes, c.options) ==
        c.folder.file("out/manifest.json") + ": is not this program's; choose another folder");
  fs::remove(c.folder.file("out/manifest.json"));
  c.folder.write("out/notes.txt", "mine");
  run(bytes, c.options);
  CHECK(c.out("notes.txt") == "mine");
}

TEST_CASE("tokenize: a folder that another process works in, or that lost a file, is refused") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  c.options.inputs = {c.folder.write("a.txt", "one")};
  TokenFolder other(c.options.out_dir, R"({"name": "t"})", "vocabulary.json", bytes.content);
  other.open(false);
  CHECK_THROWS_WITH(run(bytes, c.options),
                    c.options.out_dir + ": another process is at work in this folder");
  Case lost;
  lost.options.inputs = c.options.inputs;
  run(bytes, lost.options);
  fs::remove(lost.folder.file("out/t_train_000000.bin"));
  CHECK(why(bytes, lost.options) == lost.folder.file("out/t_train_000000.bin") +
                                        ": is missing; give --overwrite to begin anew");
  for (const std::string name : {"out/t_train_000000.bin", "out/vocabulary.json"}) {
    Case changed;
    changed.options.inputs = c.options.inputs;
    run(bytes, changed.options);
    std::string content = changed.folder.read(name);
    content.back() ^= 1;
    changed.folder.write(name, content);
    CHECK(why(bytes, changed.options) ==
          changed.folder.file(name) +
              ": has been changed since it was written; give --overwrite to begin anew");
  }
}

TEST_CASE("tokenize: validation is a part of the documents, drawn by number and seed") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"text\": \"" + std::string(1, 'a' + i % 26) + "\"}\n";
  c.options.inputs = {c.folder.write("a.jsonl", lines)};
  c.options.val_fraction = 0.1;
  c.options.overwrite = true;
  const TokenizeResult result = run(bytes, c.options);
  CHECK(result.train.documents + result.val.documents == 1000);
  CHECK(std::abs(result.val.documents - 100) < 40);  // four deviations
  std::string train, val;
  for (int i = 0; i < 1000; ++i) (in_validation(1, i, 0.1) ? val : train) += 'a' + i % 26;
  CHECK(bytes.vocabulary->decode(ids_of(c.out("t_train_000000.bin"))) == train);
  CHECK(bytes.vocabulary->decode(ids_of(c.out("t_val_000000.bin"))) == val);
  c.options.seed = 2;
  run(bytes, c.options);
  CHECK(bytes.vocabulary->decode(ids_of(c.out("t_val_000000.bin"))) != val);

  c.options.val_fraction = 0;
  c.options.val_documents = 3;
  run(bytes, c.options);
  CHECK(ids_of(c.out("t_val_000000.bin")) == Ids{'a', 'b', 'c'});
  CHECK(ids_of(c.out("t_train_000000.bin")).size() == 997);
  // A larger share keeps what a smaller one has drawn.
  for (int i = 0; i < 1000; ++i) CHECK((!in_validation(5, i, 0.1) || in_validation(5, i, 0.2)));
}

TEST_CASE("tokenize: a vocabulary beyond uint16 is refused by formats of uint16") {
  Case c;
  CharacterSet set;
  std::string text;
  for (char32_t value = 0x4E00; value < 0x4E00 + 20'902; ++value) {
    for (const int shift : {12, 6, 0}) {
      text += static_cast<char>((shift == 12 ? 0xE0 : 0x80) | ((value >> shift) & 0x3F));
    }
  }
  for (int plane = 0xA0; plane <= 0xAA; ++plane) {  // 45,056 characters of planes 2
    for (int i = 0; i < 4096; ++i) {
      text += {'\xF0', static_cast<char>(plane), static_cast<char>(0x80 | i >> 6),
               static_cast<char>(0x80 | (i & 0x3F))};
    }
  }
  set.add(text, "");
  const TokenizerFile large = describe_tokenizer(Vocabulary::chars(set));
  REQUIRE(large.vocabulary->size() == 20'902 + 45'056);
  c.options.inputs = {c.folder.write("a.txt", text)};
  for (const auto layout : {TokenLayout::llmc_u16, TokenLayout::raw_u16}) {
    c.options.layout = layout;
    CHECK(why(large, c.options) == "format " + std::string(name_of(layout)) +
                                       " holds vocabularies of at most 65536 tokens; the "
                                       "tokenizer has 65958");
  }
  CHECK_FALSE(fs::exists(c.options.out_dir));
  c.options.layout = TokenLayout::llmc_u32;
  CHECK(run(large, c.options).train.tokens == 65'958);
}

TEST_CASE("tokenize: inputs without text, bad lines and settings are refused, leaving nothing") {
  Case c;
  const TokenizerFile bytes = open_tokenizer("bytes");
  const auto refused = [&] {
    const std::string message = why(bytes, c.options);
    CHECK_FALSE(fs::exists(c.options.out_dir));
    return message;
  };
  CHECK(refused() == "no inputs; name files, folders, patterns or -");
  c.options.inputs = {c.folder.write("empty.txt", "")};
  CHECK(refused() == "the inputs hold no text");
  std::string lines;
  for (int i = 0; i < 40'000; ++i) lines += "{\"text\": \"fine\"}\n";
  c.options.inputs = {c.folder.write("a.jsonl", lines + "{\"txt\": \"bad\"}\n" + lines + "worse")};
  c.options.threads = 3;
  CHECK(refused() == c.options.inputs[0] + ":40001: has no member \"text\"");
  c.options.inputs = {c.folder.write("a.txt", "one")};
  c.options.val_documents = 1;
  CHECK(refused() == "no document is left for training: all 1 are for validation");
  c.options.val_fraction = 0.5;
  CHECK(refused() ==
        "validation is either a fraction, a number of documents or inputs of its own; "
        "give one of them");
  c.options.val_documents = 0;
  c.options.val_fraction = 1;
  CHECK(refused() == "the share of validation must lie in [0, 1); got 1");
  c.options.val_fraction = 0;
  for (const char* const name : {"", "a/b", "\xFF"}) {
    c.options.name = name;
    CHECK(refused().starts_with("the name of shards must be valid UTF-8 without a slash"));
  }
  c.options.name = "t";
  c.options.out_dir = c.folder.file("a/out");
  fs::create_directory(c.folder.file("a"));
  c.folder.write("a/b.txt", "x");
  c.options.inputs = {c.folder.file("a")};
  CHECK(refused() == c.options.out_dir + ": the output folder and the input " + c.folder.file("a") +
                         " must not lie one in the other");
}

TEST_CASE("tokenize: chars are found in all documents, their own text in JSONL") {
  Case c;
  c.options.inputs = {c.folder.write("a.jsonl", "{\"text\": \"b\\u00e9\"}\n"),
                      c.folder.write("b.txt", "ab")};
  const TokenizerFile chars = tokenizer_of_characters(c.options);
  CHECK(chars.vocabulary->size() == 3);
  run(chars, c.options);
  CHECK(ids_of(c.out("t_train_000000.bin")) == Ids{1, 2, 0, 1});
  c.options.inputs = {c.folder.write("bad.txt", "a\xFF")};
  CHECK(rejection([&] {
          tokenizer_of_characters(c.options);
        }).starts_with(c.options.inputs[0] + ":1: byte 1 does not begin"));
  c.options.inputs = {"-"};
  CHECK(rejection([&] {
          tokenizer_of_characters(c.options);
        }).starts_with("-: characters are found by reading the inputs twice"));
}

TEST_CASE("tokenize: training finds the tokenizer beside the token files") {
  Case c;
  const auto tokenizer = open_tokenizer(c.folder.write("t.json", small_tokenizer_json("gpt2")));
  const std::string text = mixed_text(3000);
  c.options.inputs = {c.folder.write("a", text)};
  c.options.shard_tokens = 500;
  run(tokenizer, c.options);
  DataConfig config;
  config.train_files = {c.folder.file("out/*_train_*.bin")};
  const Data data = open_data(config, 0);
  CHECK(data.vocabulary->kind() == Vocabulary::Kind::bpe);
  CHECK(data.vocabulary->size() == tokenizer.vocabulary->size());
  Ids ids(static_cast<size_t>(data.train->size()));
  data.train->read(0, ids);
  CHECK(data.vocabulary->decode(ids) == text);

  // Shards of another tokenizer do not join them.
  c.options.out_dir = c.folder.file("other");
  run(open_tokenizer("bytes"), c.options);
  config.train_files.push_back(c.folder.file("other/*_train_*.bin"));
  CHECK(rejection([&] { open_data(config, 0); })
            .starts_with(c.folder.file("other/t_train_000000.bin") +
                         ": was made with another tokenizer than " +
                         c.folder.file("out/t_train_000000.bin")));
}

TEST_CASE("tokenize: standard input lies in no folder, not even in the current one") {
  Case c;
  c.options.inputs = {"-"};
  c.options.out_dir = ".";
  c.options.threads = 0;  // refused behind the check of folders, and before anything is written
  CHECK(why(open_tokenizer("bytes"), c.options) == "threads must be at least 1; got 0");
}

}  // namespace
}  // namespace xtrain
