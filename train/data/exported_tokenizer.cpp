#include "train/data/exported_tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/byte_alphabet.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEndMarkers[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>"};

Json tokenizer_json(Json pre_tokenizer, Json decoder, Json model) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", Json::array()},
          {"normalizer", nullptr},     {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", nullptr}, {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

std::string bytes_json() {
  Json::object_t vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab.Container::emplace_back(spell_bytes({&c, 1}), byte);
  }
  const Json byte_level{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", false},
                        {"use_regex", false}};
  const Json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", std::move(vocab)},
                   {"merges", Json::array()}};
  return tokenizer_json(byte_level, byte_level, model).dump(2) + "\n";
}

// A word that is not there makes the library fail, for want of a token for unknown words.
std::string chars_json(const Vocabulary& vocabulary) {
  Json::object_t vocab;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    vocab.Container::emplace_back(vocabulary.decode({&id, 1}), id);
  }
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", "[\\s\\S]"}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  const Json model{
      {"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "<unknown character>"}};
  return tokenizer_json(split, {{"type", "Fuse"}}, model).dump(2) + "\n";
}

std::string config_json(const Vocabulary& vocabulary, int64_t max_length) {
  Json json{{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"clean_up_tokenization_spaces", false},
            {"model_max_length", max_length}};
  if (const auto end = end_of_text_id(vocabulary)) {
    const int32_t id = static_cast<int32_t>(*end);
    json["eos_token"] = vocabulary.decode({&id, 1});
  }
  return json.dump(2) + "\n";
}

// Whether two files give the same ids to every text.
bool same_tokenizer(const nlohmann::json& a, const nlohmann::json& b) {
  const auto part = [](const nlohmann::json& json, const char* pointer) {
    const nlohmann::json::json_pointer place(pointer);
    return json.contains(place) ? json.at(place) : nlohmann::json();
  };
  for (const char* pointer : {"/normalizer", "/pre_tokenizer", "/model/type", "/model/vocab",
                              "/model/merges", "/model/unk_token", "/added_tokens"}) {
    if (part(a, pointer) != part(b, pointer)) return false;
  }
  return true;
}

// The words of the file in the order of their ids, as a vocabulary's own file lists characters.
std::optional<Vocabulary> chars_of(const nlohmann::json& words) {
  std::map<int64_t, std::string> tokens;
  for (const auto& [word, id] : words.items()) {
    if (id.is_number_integer()) tokens.emplace(id.get<int64_t>(), word);
  }
  Json json{{"kind", "chars"}, {"size", tokens.size()}, {"tokens", Json::array()}};
  for (const auto& [id, word] : tokens) json["tokens"].push_back(word);
  try {
    return Vocabulary::from_json(json.dump(), "tokenizer.json");
  } catch (const InputError&) {
    return std::nullopt;  // words of several characters, or in another order
  }
}

}  // namespace

std::map<std::string, std::string> exported_tokenizer(const Vocabulary& vocabulary,
                                                      int64_t max_length) {
  if (vocabulary.kind() == Vocabulary::Kind::ids) return {};
  const std::string tokenizer = vocabulary.kind() == Vocabulary::Kind::bytes ? bytes_json()
                                : vocabulary.kind() == Vocabulary::Kind::chars
                                    ? chars_json(vocabulary)
                                    : vocabulary.to_json();
  return {{"tokenizer.json", tokenizer},
          {"tokenizer_config.json", config_json(vocabulary, max_length)}};
}

std::optional<Vocabulary> byte_or_char_vocabulary(std::string_view tokenizer_json) {
  const auto json = nlohmann::json::parse(tokenizer_json, nullptr, false);
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object()) return {};
  if (same_tokenizer(json, nlohmann::json::parse(bytes_json()))) return Vocabulary::bytes();
  const nlohmann::json& model = json["model"];
  if (model.value("type", nlohmann::json()) != "WordLevel" || !model.contains("vocab")) return {};
  std::optional<Vocabulary> chars = chars_of(model["vocab"]);
  if (chars && !same_tokenizer(json, nlohmann::json::parse(chars_json(*chars)))) chars.reset();
  return chars;
}

std::optional<int64_t> end_of_text_id(const Vocabulary& vocabulary) {
  if (!vocabulary.tokenizer()) return std::nullopt;
  for (const char* marker : kEndMarkers) {
    const int32_t id = vocabulary.tokenizer()->added_id(marker);
    if (id >= 0) return id;
  }
  return std::nullopt;
}

}  // namespace xtrain
