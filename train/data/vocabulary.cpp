#include "train/data/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "train/data/bpe_tokenizer.h"
#include "train/data/tokenizer_json.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

constexpr int64_t kMaxVocabulary = 1 << 30;

// Reads the character at `position` and moves past it. What is no valid character is refused, so
// that every text has one sequence of ids and comes back.
uint32_t next_character(std::string_view text, size_t& position, std::string_view where) {
  const std::string_view rest = text.substr(position);
  const size_t length = utf8_character_length(rest);
  check_input(length > 0, where, ": byte ", position,
              " does not begin a valid UTF-8 character; use source ",
              "\"text\", which takes any bytes");
  position += length;
  return utf8_code_point(rest.substr(0, length));
}

void append_character(uint32_t value, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | (value >> 6));
  } else {
    if (value < 0x10000) {
      put(0xE0 | (value >> 12));
    } else {
      put(0xF0 | (value >> 18));
      put(0x80 | ((value >> 12) & 0x3F));
    }
    put(0x80 | ((value >> 6) & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

std::vector<int32_t> parse_ids(std::string_view text, int64_t size, std::string_view where) {
  std::vector<int32_t> ids;
  constexpr std::string_view kSpaces = " \t\r\n,";
  for (size_t i = text.find_first_not_of(kSpaces); i != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, i), text.size());
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + i, text.data() + end, id);
    check_input(error == std::errc() && stop == text.data() + end && id >= 0 && id < size, where,
                ": must be token ids in 0..", size - 1, "; got \"", text.substr(i, end - i), "\"");
    ids.push_back(id);
    i = text.find_first_not_of(kSpaces, end);
  }
  return ids;
}

nlohmann::json parse_json(std::string_view json, const std::string& where) {
  try {
    return nlohmann::json::parse(shallow_json(json, where));
  } catch (const nlohmann::json::parse_error& error) {
    reject_input(where, ": is not JSON at byte ", error.byte, " of ", json.size(),
                 "; the file is damaged or cut short");
  }
}

}  // namespace

Vocabulary Vocabulary::bytes() {
  return Vocabulary(Kind::bytes, 256);
}

Vocabulary Vocabulary::ids(int64_t size) {
  check_input(size > 0 && size <= kMaxVocabulary, "vocabulary: size must lie in 1..",
              kMaxVocabulary, "; got ", size);
  return Vocabulary(Kind::ids, size);
}

void CharacterSet::add(std::string_view text, std::string_view where) {
  for (size_t position = 0; position < text.size();) {
    seen_[next_character(text, position, where)] = true;
  }
}

std::vector<uint32_t> CharacterSet::code_points() const {
  std::vector<uint32_t> values;
  for (uint32_t value = 0; value < seen_.size(); ++value) {
    if (seen_[value]) values.push_back(value);
  }
  return values;
}

Vocabulary Vocabulary::chars(const CharacterSet& characters) {
  Vocabulary vocabulary(Kind::chars, 0);
  vocabulary.code_points_ = characters.code_points();
  vocabulary.size_ = static_cast<int64_t>(vocabulary.code_points_.size());
  return vocabulary;
}

Vocabulary Vocabulary::bpe(std::shared_ptr<const BpeTokenizer> tokenizer) {
  Vocabulary vocabulary(Kind::bpe, tokenizer->size());
  vocabulary.tokenizer_ = std::move(tokenizer);
  return vocabulary;
}

std::string_view Vocabulary::kind_name() const {
  switch (kind_) {
    case Kind::bytes:
      return "bytes";
    case Kind::chars:
      return "chars";
    case Kind::bpe:
      return "bpe";
    case Kind::ids:
      return "ids";
  }
  fail("vocabulary: unknown kind");
}

std::vector<int32_t> Vocabulary::encode(std::string_view text, std::string_view where) const {
  if (kind_ == Kind::ids) return parse_ids(text, size_, where);
  std::vector<int32_t> ids;
  if (kind_ == Kind::bpe) {
    BpeEncoder(tokenizer_).encode(text, ids);
    return ids;
  }
  ids.reserve(text.size());
  if (kind_ == Kind::bytes) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const uint32_t value = next_character(text, position, where);
    const auto found = std::lower_bound(code_points_.begin(), code_points_.end(), value);
    check_input(found != code_points_.end() && *found == value, where, ": the character \"",
                text.substr(start, position - start), "\" at byte ", start, " is not one of the ",
                size_, " in the vocabulary");
    ids.push_back(static_cast<int32_t>(found - code_points_.begin()));
  }
  return ids;
}

std::string Vocabulary::decode(std::span<const int32_t> ids) const {
  if (kind_ == Kind::bpe) return tokenizer_->decode(ids);
  std::string out;
  for (const int32_t id : ids) {
    check(id >= 0 && id < size_, "vocabulary: id must lie in 0..", size_ - 1, "; got ", id);
    if (kind_ == Kind::bytes) out.push_back(static_cast<char>(id));
    if (kind_ == Kind::chars) append_character(code_points_[static_cast<size_t>(id)], out);
    if (kind_ == Kind::ids) out += std::to_string(id) + ' ';
  }
  return out;
}

std::string Vocabulary::to_json() const {
  if (kind_ == Kind::bpe) return to_tokenizer_json(*tokenizer_);
  nlohmann::ordered_json json{{"kind", kind_name()}, {"size", size_}};
  for (int32_t id = 0; kind_ == Kind::chars && id < size_; ++id) {
    json["tokens"].push_back(decode({&id, 1}));
  }
  return json.dump(1) + "\n";
}

Vocabulary Vocabulary::from_json(std::string_view json_text, const std::string& where) {
  const auto json = parse_json(json_text, where);
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  if (has("model")) {
    return bpe(std::make_shared<BpeTokenizer>(parse_tokenizer_json(json_text, where)));
  }
  check_input(has("kind") && json["kind"].is_string() && has("size") &&
                  json["size"].is_number_integer() && json["size"] >= 0,
              where, ": must be a JSON object with a \"kind\" and a \"size\"");
  const std::string kind = json["kind"];
  const auto size = json["size"].get<int64_t>();
  if (kind == "bytes") return bytes();
  if (kind == "ids") return ids(size);
  check_input(kind == "chars", where, ": kind must be bytes, chars or ids; got \"", kind, "\"");
  check_input(has("tokens") && json["tokens"].is_array(), where, ": must have a list \"tokens\"");
  Vocabulary vocabulary(Kind::chars, static_cast<int64_t>(json["tokens"].size()));
  check_input(vocabulary.size_ == size, where, ": size says ", size, "; the list has ",
              vocabulary.size_);
  for (const auto& token : json["tokens"]) {
    const std::string character = token.is_string() ? token.get<std::string>() : "";
    size_t end = 0;
    const uint32_t value = character.empty() ? 0 : next_character(character, end, where);
    auto& known = vocabulary.code_points_;
    check_input(end > 0 && end == character.size() && (known.empty() || known.back() < value),
                where, ": tokens must be single characters in code point order; entry ",
                known.size(), " is ", excerpt(token));
    known.push_back(value);
  }
  return vocabulary;
}

Vocabulary Vocabulary::load(const std::string& path) {
  const MappedFile file(path);
  return from_json(file.text(), path);
}

}  // namespace xtrain
