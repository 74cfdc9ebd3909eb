#include "train/data/open_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/mapped_file.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kVocabJson = "vocab.json";
constexpr const char* kCheckpointVocabulary = "vocabulary.json";

// tokenizer_config.json of the folder; an empty object where there is none.
Json read_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!fs::exists(path)) return Json::object();
  Json config = Json::parse(MappedFile(path.string()).text(), nullptr, false);
  check_input(config.is_object(), path.string(), ": must be a JSON object");
  return config;
}

// The text of a token that stands for itself or in an object that describes it.
std::string content_of(const Json& token) {
  if (token.is_object() && token.contains("content")) return content_of(token["content"]);
  return token.is_string() ? token.get<std::string>() : "";
}

bool is_class(const Json& config, std::string_view name) {
  const auto found = config.find("tokenizer_class");
  return found != config.end() && (*found == name || *found == std::string(name) + "Fast");
}

std::vector<AddedToken> added_tokens(const Json& config, const std::string& where) {
  std::vector<AddedToken> added;
  if (!config.contains("added_tokens_decoder")) return added;
  for (const auto& [key, token] : config["added_tokens_decoder"].items()) {
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    check_input(error == std::errc() && stop == key.data() + key.size() && token.is_object(), where,
                ": added_tokens_decoder must map ids to tokens; found \"", key, '"');
    const Json special = token.value("special", Json(false));
    added.push_back({id, content_of(token), special == true, false});
  }
  std::sort(added.begin(), added.end(), [](auto& a, auto& b) { return a.id < b.id; });
  return added;
}

// The end of text of GPT-2 is spelt like a word of its vocabulary, and is none.
std::vector<AddedToken> gpt2_markers(const Json& vocab) {
  const auto found = vocab.find("<|endoftext|>");
  if (found == vocab.end() || !found->is_number_integer()) return {};
  return {{found->get<int32_t>(), "<|endoftext|>"}};
}

TokenizerFile open_vocab_and_merges(const fs::path& folder, const Json& config) {
  const std::string vocab = (folder / kVocabJson).string(),
                    merges = (folder / "merges.txt").string();
  const bool qwen2 = is_class(config, "Qwen2Tokenizer");
  check_input(qwen2 || is_class(config, "GPT2Tokenizer") || !config.contains("tokenizer_class"),
              folder.string(), ": the pattern of tokenizer_class ",
              config.value("tokenizer_class", Json()).dump(),
              " is not known; it must be GPT2Tokenizer or Qwen2Tokenizer, or there must be a ",
              kTokenizerJson);
  std::vector<AddedToken> added = added_tokens(config, (folder / "tokenizer_config.json").string());
  if (added.empty()) {
    added = gpt2_markers(Json::parse(MappedFile(vocab).text(), nullptr, false));
  }
  return describe_tokenizer(Vocabulary::bpe(std::make_shared<BpeTokenizer>(load_vocab_and_merges(
      vocab, merges, qwen2 ? kQwen2Pattern : kGpt2Pattern, std::move(added), qwen2))));
}

TokenizerFile open_file(const fs::path& path) {
  const MappedFile file(path.string());
  auto vocabulary = std::make_shared<Vocabulary>(Vocabulary::from_json(file.text(), path.string()));
  check_input(vocabulary->kind() != Vocabulary::Kind::ids, path.string(),
              ": does not say what text its ids stand for");
  const bool bpe = vocabulary->kind() == Vocabulary::Kind::bpe;
  return {std::move(vocabulary), bpe ? kTokenizerJson : kVocabJson, std::string(file.text()), ""};
}

// Hugging Face's vocab.json, tokens and ids alone, means nothing without the merges beside it.
bool is_bare_vocab(const fs::path& path) {
  if (path.filename() != kVocabJson || !fs::exists(path)) return false;
  const Json json = Json::parse(MappedFile(path.string()).text(), nullptr, false);
  return json.is_object() && !json.empty() && json.begin()->is_number() &&
         std::all_of(json.begin(), json.end(), [](const Json& id) { return id.is_number(); });
}

TokenizerFile open_content(const fs::path& folder, const Json& config) {
  for (const char* name : {kTokenizerJson, kCheckpointVocabulary}) {
    if (fs::exists(folder / name)) return open_file(folder / name);
  }
  check_input(fs::exists(folder / kVocabJson), folder.string(), ": must hold a ", kTokenizerJson,
              ", ", kCheckpointVocabulary, " or ", kVocabJson);
  if (is_bare_vocab(folder / kVocabJson)) return open_vocab_and_merges(folder, config);
  return open_file(folder / kVocabJson);
}

TokenizerFile open_folder(const fs::path& folder) {
  const Json config = read_config(folder);
  TokenizerFile tokenizer = open_content(folder, config);
  if (config.contains("eos_token")) tokenizer.end_token = content_of(config["eos_token"]);
  return tokenizer;
}

int32_t id_of(const Vocabulary& vocabulary, const std::string& content) {
  if (!vocabulary.tokenizer() || content.empty()) return -1;
  const int32_t added = vocabulary.tokenizer()->added_id(content);
  if (added >= 0) return added;
  const auto& tokens = vocabulary.tokenizer()->parts().model.tokens();
  const auto found = std::find(tokens.begin(), tokens.end(), content);
  return found == tokens.end() ? -1 : static_cast<int32_t>(found - tokens.begin());
}

}  // namespace

TokenizerFile open_tokenizer(const std::string& path) {
  if (path == "bytes") return describe_tokenizer(Vocabulary::bytes());
  if (fs::is_directory(path)) return open_folder(path);
  if (is_bare_vocab(path)) return open_folder(fs::path(path).parent_path());
  TokenizerFile tokenizer = open_file(path);
  const Json config = read_config(fs::path(path).parent_path());
  if (config.contains("eos_token")) tokenizer.end_token = content_of(config["eos_token"]);
  return tokenizer;
}

TokenizerFile describe_tokenizer(Vocabulary vocabulary) {
  const bool bpe = vocabulary.kind() == Vocabulary::Kind::bpe;
  std::string json = vocabulary.to_json();
  return {std::make_shared<Vocabulary>(std::move(vocabulary)), bpe ? kTokenizerJson : kVocabJson,
          std::move(json), ""};
}

int32_t find_end_token(const TokenizerFile& tokenizer, const std::string& wanted) {
  const Vocabulary& vocabulary = *tokenizer.vocabulary;
  if (wanted == "none") return -1;
  if (!wanted.empty()) {
    int32_t id = id_of(vocabulary, wanted);
    if (id >= 0) return id;
    const auto [stop, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), id);
    check_input(
        error == std::errc() && stop == wanted.data() + wanted.size() && id >= 0 &&
            id < vocabulary.size(),
        "the end-of-text token must be \"none\", one of the tokenizer's tokens or an id in 0..",
        vocabulary.size() - 1, "; got \"", wanted, '"');
    return id;
  }
  for (const std::string& usual :
       {std::string("<|endoftext|>"), std::string("<|end_of_text|>"), tokenizer.end_token}) {
    const int32_t id = id_of(vocabulary, usual);
    if (id >= 0) return id;
  }
  return -1;
}

}  // namespace xtrain
