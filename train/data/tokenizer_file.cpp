#include "train/data/tokenizer_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/exported_tokenizer.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kVocabularyJson = "vocabulary.json";
constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kVocabJson = "vocab.json";
constexpr const char* kMergesTxt = "merges.txt";
constexpr const char* kEndOfText = "<|endoftext|>";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// An empty object where there is no such file.
Json read_object(const fs::path& path) {
  if (!is_there(path)) return Json::object();
  const MappedFile file(path.string());
  return Json::parse(checked_json_object(file.text(), path.string()));
}

Json read_config(const fs::path& folder) {
  return read_object(folder / "tokenizer_config.json");
}

std::string string_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The text of a token that stands for itself or in an object that describes it.
std::string content_of(const Json& token) {
  return token.is_string() ? token.get<std::string>() : string_at(token, "content");
}

std::string end_token_of(const Json& config) {
  const auto found = config.find("eos_token");
  return found != config.end() && (found->is_string() || found->is_object()) ? content_of(*found)
                                                                             : "";
}

// {"151643": {"content": "<|endoftext|>", "special": true, ...}, ...}
std::vector<AddedToken> read_added_tokens(const Json& config, const std::string& where) {
  std::vector<AddedToken> added;
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || !decoder->is_object()) return added;
  for (const auto& [key, token] : decoder->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool valid = error == std::errc() && end == key.data() + key.size() && id >= 0 &&
                       token.is_object() && token.contains("content") &&
                       token["content"].is_string();
    check_input(valid, where, ": added_tokens_decoder: ", key,
                " must be an id with an object that has a \"content\"");
    added.push_back({id, token["content"], token.value("special", Json(false)) == true,
                     token.value("normalized", Json(true)) == true});
  }
  std::sort(added.begin(), added.end(), [](auto& a, auto& b) { return a.id < b.id; });
  return added;
}

// GPT-2's folders say nowhere that this entry of the vocabulary is a marker.
std::vector<AddedToken> gpt2_markers(const fs::path& vocab_path) {
  const MappedFile file(vocab_path.string());
  const Json vocab = Json::parse(shallow_json(file.text(), file.path()), nullptr, false);
  const auto found = vocab.is_object() ? vocab.find(kEndOfText) : vocab.end();
  if (found == vocab.end() || !found->is_number_integer()) return {};
  return {{found->get<int32_t>(), kEndOfText}};
}

// The pattern of vocab.json and merges.txt, which do not tell it: that of the tokenizer's class, or
// else of the kind of model that lies beside them.
std::string_view pattern_of(const fs::path& folder, const Json& config) {
  std::string name = string_at(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name == "GPT2Tokenizer") return kGpt2Pattern;
  if (name == "Qwen2Tokenizer") return kQwen2Pattern;
  check_input(name.empty() || name == "PreTrainedTokenizer", folder.string(),
              ": the pattern of tokenizer_class \"", name,
              "\" is not known; it must be GPT2Tokenizer or Qwen2Tokenizer, or there must be a ",
              kTokenizerJson);
  const std::string model_type = string_at(read_object(folder / "config.json"), "model_type");
  if (model_type.starts_with("qwen")) return kQwen2Pattern;
  return model_type == "llama" ? kLlama3Pattern : kGpt2Pattern;
}

TokenizerFile open_vocab_and_merges(const fs::path& folder, const Json& config) {
  const fs::path vocab = folder / kVocabJson, merges = folder / kMergesTxt;
  const std::string_view pattern = pattern_of(folder, config);
  std::vector<AddedToken> added =
      read_added_tokens(config, (folder / "tokenizer_config.json").string());
  if (added.empty()) added = gpt2_markers(vocab);
  TokenizerFile tokenizer =
      describe_tokenizer(Vocabulary::bpe(std::make_shared<BpeTokenizer>(load_vocab_and_merges(
          vocab.string(), merges.string(), pattern, std::move(added), pattern == kQwen2Pattern))));
  tokenizer.path = vocab.string();
  return tokenizer;
}

TokenizerFile open_file(const fs::path& path) {
  const MappedFile file(path.string());
  std::optional<Vocabulary> plain = byte_or_char_vocabulary(shallow_json(file.text(), file.path()));
  TokenizerFile tokenizer = describe_tokenizer(
      plain ? *std::move(plain) : Vocabulary::from_json(file.text(), path.string()));
  if (tokenizer.vocabulary->kind() == Vocabulary::Kind::bpe) tokenizer.content = file.text();
  tokenizer.path = path.string();
  return tokenizer;
}

// Hugging Face's vocab.json, tokens and ids alone, means nothing without the merges beside it.
bool is_bare_vocab(const fs::path& path) {
  if (path.filename() != kVocabJson || !is_there(path)) return false;
  const MappedFile file(path.string());
  const Json json = Json::parse(shallow_json(file.text(), file.path()), nullptr, false);
  return json.is_object() && !json.empty() && json.begin()->is_number() &&
         std::all_of(json.begin(), json.end(), [](const Json& id) { return id.is_number(); });
}

std::optional<TokenizerFile> open_from_folder(const fs::path& folder, const Json& config) {
  for (const char* name : {kVocabularyJson, kTokenizerJson}) {
    if (is_there(folder / name)) return open_file(folder / name);
  }
  if (is_bare_vocab(folder / kVocabJson)) return open_vocab_and_merges(folder, config);
  if (is_there(folder / kVocabJson)) return open_file(folder / kVocabJson);
  return std::nullopt;
}

TokenizerFile check_known(TokenizerFile tokenizer) {
  check_input(tokenizer.vocabulary->kind() != Vocabulary::Kind::ids, tokenizer.path,
              ": does not say what text its ids stand for");
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

std::optional<TokenizerFile> tokenizer_in(const std::string& folder) {
  const Json config = read_config(folder);
  std::optional<TokenizerFile> tokenizer = open_from_folder(folder, config);
  if (tokenizer) tokenizer->end_token = end_token_of(config);
  return tokenizer;
}

TokenizerFile open_tokenizer(const std::string& path) {
  if (path == "bytes") return describe_tokenizer(Vocabulary::bytes());
  const fs::path parent = fs::path(path).parent_path();
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && !is_bare_vocab(path)) {
    TokenizerFile tokenizer = open_file(path);
    tokenizer.end_token = end_token_of(read_config(parent));
    return check_known(std::move(tokenizer));
  }
  std::optional<TokenizerFile> tokenizer = tokenizer_in(folder ? path : parent.string());
  check_input(tokenizer.has_value(), path, ": must hold a ", kVocabularyJson, ", a ",
              kTokenizerJson, " or a ", kVocabJson);
  return check_known(*std::move(tokenizer));
}

TokenizerFile describe_tokenizer(Vocabulary vocabulary) {
  TokenizerFile tokenizer;
  tokenizer.name = vocabulary.kind() == Vocabulary::Kind::bpe ? kTokenizerJson : kVocabularyJson;
  tokenizer.content = vocabulary.to_json();
  tokenizer.vocabulary = std::make_shared<Vocabulary>(std::move(vocabulary));
  return tokenizer;
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
  const std::optional<int64_t> usual = end_of_text_id(vocabulary);
  return usual ? static_cast<int32_t>(*usual) : id_of(vocabulary, tokenizer.end_token);
}

}  // namespace xtrain
