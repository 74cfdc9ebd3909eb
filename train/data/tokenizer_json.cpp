#include "train/data/tokenizer_json.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "train/data/byte_alphabet.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMaxId = (1 << 24) - 1;

// The tokens' spellings, to find the ids of merges.
struct Spellings {
  std::vector<std::string> tokens;  // bytes by id
  std::unordered_map<std::string, int32_t> id_of;
};

// A text of the file, written in quotes and in one line: control characters are escaped.
struct Quoted {
  std::string_view text;

  friend std::ostream& operator<<(std::ostream& out, const Quoted& quoted) {
    return out << excerpt(Json(std::string(quoted.text)));
  }
};

// Refuses what the JSON library lets pass: one key twice, and nesting without end.
class StrictParsing {
 public:
  explicit StrictParsing(const std::string& where) : where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    constexpr int kDeepest = 32;
    check_input(depth <= kDeepest, where_, ": is nested more than ", kDeepest, " levels deep");
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      check_input(keys_.back().insert(key).second, where_, ": the key ", Quoted{key},
                  " comes twice");
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each object that is open
};

Json parse(std::string_view json, const std::string& where) {
  StrictParsing strict(where);
  try {
    const Json parsed = Json::parse(json, std::ref(strict));
    check_input(parsed.is_object(), where, ": must be a JSON object");
    return parsed;
  } catch (const Json::parse_error& error) {
    reject_input(where, ": is not JSON at byte ", error.byte, " of ", json.size(),
                 "; the file is damaged or cut short");
  }
}

bool is_type(const Json& value, std::string_view type) {
  return value.is_object() && member(value, "type") == type;
}

// Refuses a key that would change ids unless it is left out, null or one of `neutral`.
void require_neutral(const Json& object, const char* key, std::initializer_list<Json> neutral,
                     const std::string& where) {
  const Json& value = member(object, key);
  const bool holds =
      value.is_null() || std::find(neutral.begin(), neutral.end(), value) != neutral.end();
  check_input(holds, where, ": \"", key, "\" is ", excerpt(value), ", which is not supported");
}

int32_t read_id(const Json& value, std::string_view token, const std::string& where) {
  const bool valid = value.is_number_integer() && value >= 0 && value <= kMaxId;
  check_input(valid, where, ": the id of token ", Quoted{token}, " must be an integer in 0..",
              kMaxId, "; got ", excerpt(value));
  return value.get<int32_t>();
}

// Added tokens may stand in the vocabulary too, spelt as they are.
Spellings read_vocab(const Json& vocab, const std::vector<AddedToken>& added,
                     const std::string& where) {
  check_input(vocab.is_object() && !vocab.empty(), where,
              ": the vocabulary must be an object of tokens and their ids");
  Spellings spellings;
  for (const auto& [spelling, value] : vocab.items()) {
    const int32_t id = read_id(value, spelling, where);
    const bool marker = std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
      return token.id == id && token.content == spelling;
    });
    const auto bytes = marker ? std::optional<std::string>(spelling) : bytes_of_spelling(spelling);
    check_input(bytes && !bytes->empty(), where, ": token ", Quoted{spelling},
                " is not spelt in the alphabet of byte-level tokenizers");
    const auto place = static_cast<size_t>(id);
    if (place >= spellings.tokens.size()) spellings.tokens.resize(place + 1);
    check_input(spellings.tokens[place].empty(), where, ": id ", id, " has two tokens; one is ",
                Quoted{spelling});
    spellings.tokens[place] = *bytes;
    spellings.id_of.emplace(spelling, id);
  }
  return spellings;
}

TokenPair read_merge(std::string_view left, std::string_view right, size_t rank,
                     const Spellings& spellings, const std::string& where) {
  const auto id = [&](std::string_view part) {
    const auto found = spellings.id_of.find(std::string(part));
    check_input(found != spellings.id_of.end(), where, ": merge ", rank, " joins ", Quoted{part},
                ", which is not in the vocabulary");
    return found->second;
  };
  return {id(left), id(right)};
}

TokenPair read_merge(std::string_view line, size_t rank, const Spellings& spellings,
                     const std::string& where) {
  const size_t space = line.find(' ');
  check_input(space != std::string_view::npos && line.find(' ', space + 1) == line.npos, where,
              ": merge ", rank, " must be two tokens with a space between; got ", Quoted{line});
  return read_merge(line.substr(0, space), line.substr(space + 1), rank, spellings, where);
}

std::vector<TokenPair> read_merges(const Json& merges, const Spellings& spellings,
                                   const std::string& where) {
  check_input(merges.is_array(), where, ": \"merges\" must be a list");
  std::vector<TokenPair> pairs;
  for (const Json& merge : merges) {
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    check_input(is_pair || merge.is_string(), where, ": merge ", pairs.size(),
                R"( must be "a b" or ["a","b"]; got )", excerpt(merge));
    const size_t rank = pairs.size();
    pairs.push_back(is_pair
                        ? read_merge(merge[0].get_ref<const std::string&>(),
                                     merge[1].get_ref<const std::string&>(), rank, spellings, where)
                        : read_merge(merge.get_ref<const std::string&>(), rank, spellings, where));
  }
  return pairs;
}

AddedToken read_added_token(const Json& token, const std::string& where) {
  const bool valid =
      token.is_object() && member(token, "content").is_string() && token.contains("id");
  check_input(valid, where, ": an added token must have an \"id\" and a \"content\"; got ",
              excerpt(token));
  const std::string content = token["content"];
  const std::string here = text(where, ": added token ", Quoted{content});
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    require_neutral(token, key, {false}, here);
  }
  for (const char* key : {"special", "normalized"}) {
    const Json& value = member(token, key);
    check_input(value.is_null() || value.is_boolean(), here, ": \"", key,
                "\" must be true or false; got ", excerpt(value));
  }
  return {read_id(token["id"], content, where), content, token.value("special", false),
          token.value("normalized", true)};
}

std::vector<AddedToken> read_added_tokens(const Json& json, const std::string& where) {
  std::vector<AddedToken> added;
  if (json.is_null()) return added;
  check_input(json.is_array(), where, ": \"added_tokens\" must be a list");
  for (const Json& token : json) added.push_back(read_added_token(token, where));
  return added;
}

bool read_nfc(const Json& normalizer, const std::string& where) {
  check_input(normalizer.is_null() || is_type(normalizer, "NFC"), where,
              ": \"normalizer\" must be null or NFC; got ", excerpt(normalizer));
  return !normalizer.is_null();
}

// ByteLevel alone holds the pattern of GPT-2; a Split before it holds any other.
PreTokenizer read_pre_tokenizer(const Json& json, const std::string& where) {
  const bool sequence = is_type(json, "Sequence") && member(json, "pretokenizers").is_array() &&
                        json["pretokenizers"].size() == 2;
  const Json& split = sequence ? json["pretokenizers"][0] : Json();
  const Json& bytes = sequence ? json["pretokenizers"][1] : json;
  check_input(is_type(bytes, "ByteLevel") && (!sequence || is_type(split, "Split")), where,
              ": \"pre_tokenizer\" must be ByteLevel, or Split and ByteLevel; got ", excerpt(json));
  require_neutral(bytes, "add_prefix_space", {false}, where);
  require_neutral(bytes, "use_regex", {!sequence}, where);
  check_input(!sequence || member(bytes, "use_regex") == false, where,
              ": ByteLevel after Split must have \"use_regex\" false");
  if (!sequence) return PreTokenizer(kGpt2Pattern);
  require_neutral(split, "invert", {false}, where);
  check_input(member(split, "behavior") == "Isolated", where,
              ": \"behavior\" of Split must be Isolated; got ", excerpt(member(split, "behavior")));
  const Json& pattern = member(split, "pattern");
  check_input(pattern.is_object() && member(pattern, "Regex").is_string(), where,
              ": \"pattern\" of Split must be a Regex; got ", excerpt(pattern));
  return PreTokenizer(pattern["Regex"].get_ref<const std::string&>(), where);
}

bool read_whole_first(const Json& model, const std::string& where) {
  const Json& value = member(model, "ignore_merges");
  check_input(value.is_null() || value.is_boolean(), where,
              ": \"ignore_merges\" must be true or false; got ", excerpt(value));
  return value == true;
}

Bpe read_model(const Json& model, const std::vector<AddedToken>& added, const std::string& where) {
  check_input(is_type(model, "BPE") || (model.is_object() && !model.contains("type")), where,
              ": \"model\" must be of type BPE; got ",
              model.is_object() ? excerpt(member(model, "type")) : excerpt(model));
  require_neutral(model, "dropout", {}, where);
  require_neutral(model, "continuing_subword_prefix", {""}, where);
  require_neutral(model, "end_of_word_suffix", {""}, where);
  require_neutral(model, "byte_fallback", {false}, where);
  Spellings spellings = read_vocab(member(model, "vocab"), added, where);
  auto merges = read_merges(member(model, "merges"), spellings, where);
  return Bpe(std::move(spellings.tokens), std::move(merges), read_whole_first(model, where), where);
}

OrderedJson pre_tokenizer_json(const PreTokenizer& pre_tokenizer) {
  const bool gpt2 = pre_tokenizer.pattern() == kGpt2Pattern;
  const OrderedJson bytes{{"type", "ByteLevel"},
                          {"add_prefix_space", false},
                          {"trim_offsets", gpt2},
                          {"use_regex", gpt2}};
  if (gpt2) return bytes;
  const OrderedJson split{{"type", "Split"},
                          {"pattern", {{"Regex", pre_tokenizer.pattern()}}},
                          {"behavior", "Isolated"},
                          {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({split, bytes})}};
}

OrderedJson added_tokens_json(const std::vector<AddedToken>& added) {
  auto list = OrderedJson::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

// A marker inside the vocabulary keeps its own spelling.
std::string spelling_of(const BpeTokenizer& tokenizer, size_t id) {
  const std::string& token = tokenizer.parts().model.tokens()[id];
  return tokenizer.added_id(token) == static_cast<int32_t>(id) ? token : spell_bytes(token);
}

OrderedJson model_json(const BpeTokenizer& tokenizer) {
  const Bpe& model = tokenizer.parts().model;
  OrderedJson::object_t vocab;  // filled as a list: looking for each key would be quadratic
  for (size_t id = 0; id < model.tokens().size(); ++id) {
    if (!model.tokens()[id].empty()) {
      vocab.Container::emplace_back(spelling_of(tokenizer, id), id);
    }
  }
  auto merges = OrderedJson::array();
  for (const auto& [left, right] : model.merges()) {
    merges.push_back(OrderedJson::array({spelling_of(tokenizer, static_cast<size_t>(left)),
                                         spelling_of(tokenizer, static_cast<size_t>(right))}));
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", model.whole_first()},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

BpeTokenizer parse_tokenizer_json(std::string_view json, const std::string& where) {
  const Json file = parse(json, where);
  auto added = read_added_tokens(member(file, "added_tokens"), where);
  const Json& decoder = member(file, "decoder");
  check_input(is_type(decoder, "ByteLevel"), where, ": \"decoder\" must be ByteLevel; got ",
              excerpt(decoder));
  const Json& post_processor = member(file, "post_processor");
  Bpe model = read_model(member(file, "model"), added, where);
  return BpeTokenizer({std::move(model), read_pre_tokenizer(member(file, "pre_tokenizer"), where),
                       std::move(added), read_nfc(member(file, "normalizer"), where),
                       post_processor.is_null()
                           ? ""
                           : post_processor.dump(-1, ' ', false, Json::error_handler_t::replace)},
                      where);
}

BpeTokenizer load_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path,
                                   std::string_view pattern, std::vector<AddedToken> added,
                                   bool nfc) {
  const Json vocab = parse(MappedFile(vocab_path).text(), vocab_path);
  Spellings spellings = read_vocab(vocab, added, vocab_path);
  std::vector<TokenPair> merges;
  const MappedFile file(merges_path);
  std::string_view rest = file.text();
  for (bool first = true; !rest.empty(); first = false) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    merges.push_back(read_merge(line, merges.size(), spellings, merges_path));
  }
  return BpeTokenizer({Bpe(std::move(spellings.tokens), std::move(merges), false, merges_path),
                       PreTokenizer(pattern), std::move(added), nfc, ""},
                      vocab_path);
}

std::string to_tokenizer_json(const BpeTokenizer& tokenizer) {
  const BpeTokenizer::Parts& parts = tokenizer.parts();
  const OrderedJson post_processor =
      parts.post_processor.empty() ? OrderedJson() : OrderedJson::parse(parts.post_processor);
  const OrderedJson nfc = parts.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson();
  const OrderedJson file{{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", added_tokens_json(parts.added)},
                         {"normalizer", nfc},
                         {"pre_tokenizer", pre_tokenizer_json(parts.pre_tokenizer)},
                         {"post_processor", post_processor},
                         {"decoder",
                          {{"type", "ByteLevel"},
                           {"add_prefix_space", true},
                           {"trim_offsets", true},
                           {"use_regex", true}}},
                         {"model", model_json(tokenizer)}};
  return file.dump(2) + "\n";
}

}  // namespace xtrain
