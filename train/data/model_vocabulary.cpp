#include "train/data/model_vocabulary.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/mapped_file.h"
#include "train/data/exported_tokenizer.h"
#include "train/data/tokenizer_json.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// An empty object where there is no such file.
Json read_object(const fs::path& path) {
  if (!is_there(path)) return Json::object();
  const MappedFile file(path.string());
  check_json_object(file.text(), path.string());
  return Json::parse(without_byte_order_mark(file.text()));
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
    added.push_back(
        {id, token["content"], token.value("special", false), token.value("normalized", true)});
  }
  return added;
}

// GPT-2's folders say nowhere that this entry of the vocabulary is a marker.
void add_end_of_text(const fs::path& vocab_path, std::vector<AddedToken>& added) {
  const Json vocab = Json::parse(MappedFile(vocab_path.string()).text(), nullptr, false);
  const auto found = vocab.is_object() ? vocab.find(kEndOfText) : vocab.end();
  if (added.empty() && found != vocab.end() && found->is_number_integer()) {
    added.push_back({found->get<int32_t>(), kEndOfText, true, false});
  }
}

Vocabulary load_vocabulary(const fs::path& path) {
  const MappedFile file(path.string());
  std::optional<Vocabulary> plain = byte_or_char_vocabulary(file.text());
  return plain ? *std::move(plain) : Vocabulary::from_json(file.text(), path.string());
}

Vocabulary load_older_folder(const fs::path& folder) {
  const fs::path vocab = folder / "vocab.json", config = folder / "tokenizer_config.json";
  const Json model = read_object(folder / "config.json");
  const std::string type =
      model.contains("model_type") && model["model_type"].is_string() ? model["model_type"] : "";
  const bool qwen = type.starts_with("qwen");
  const std::string_view pattern = qwen              ? kQwen2Pattern
                                   : type == "llama" ? kLlama3Pattern
                                                     : kGpt2Pattern;
  std::vector<AddedToken> added = read_added_tokens(read_object(config), config.string());
  add_end_of_text(vocab, added);
  return Vocabulary::bpe(std::make_shared<BpeTokenizer>(load_vocab_and_merges(
      vocab.string(), (folder / "merges.txt").string(), pattern, std::move(added), qwen)));
}

}  // namespace

ModelVocabulary model_vocabulary(const std::string& folder, int64_t vocab_size) {
  const auto checked = [&](Vocabulary vocabulary, const fs::path& file) {
    check_input(vocabulary.size() <= vocab_size, file.string(), ": holds ", vocabulary.size(),
                " tokens; the model's vocab_size is ", vocab_size);
    return ModelVocabulary{std::move(vocabulary), file.string()};
  };
  for (const char* name : {"vocabulary.json", "tokenizer.json"}) {
    const fs::path path = fs::path(folder) / name;
    if (is_there(path)) return checked(load_vocabulary(path), path);
  }
  const fs::path vocab = fs::path(folder) / "vocab.json";
  if (is_there(vocab) && is_there(fs::path(folder) / "merges.txt")) {
    return checked(load_older_folder(folder), vocab);
  }
  return {Vocabulary::ids(vocab_size), ""};
}

}  // namespace xtrain
