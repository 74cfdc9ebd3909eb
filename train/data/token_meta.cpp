#include "train/data/token_meta.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_values.h"
#include "train/data/plain_pickle.h"
#include "train/data/token_file.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Tokens = std::vector<std::string>;  // by id; empty: none yet

void set_token(Tokens& tokens, const Json& id, const std::string& token, const std::string& where) {
  const bool fits = id.is_number_integer() && id >= 0 && id < tokens.size();
  check_input(fits, where, ": ids must lie in 0..", tokens.size() - 1, "; got ", excerpt(id));
  std::string& slot = tokens[id.get<size_t>()];
  check_input(!token.empty() && (slot.empty() || slot == token), where, ": id ", excerpt(id),
              " must stand for one character; got \"", slot, "\" and \"", token, "\"");
  slot = token;
}

std::string token_text(const Json& token, const std::string& where) {
  check_input(token.is_string(), where, ": \"itos\" must hold characters; got ", excerpt(token));
  return token;
}

// Keys of JSON are strings, ids too.
Json parse_id(const std::string& key, const std::string& where) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  check_input(error == std::errc() && end == key.data() + key.size(), where,
              ": the keys of \"itos\" must be ids; got \"", key, "\"");
  return id;
}

void read_itos(const Json& itos, Tokens& tokens, const std::string& where) {
  check_input(itos.is_array() || itos.is_object(), where,
              ": \"itos\" must be a list, or an object from id to character");
  if (itos.is_array()) {
    for (size_t id = 0; id < itos.size(); ++id) {
      set_token(tokens, id, token_text(itos[id], where), where);
    }
  } else {
    for (const auto& [key, token] : itos.items()) {
      set_token(tokens, parse_id(key, where), token_text(token, where), where);
    }
  }
}

// Follows from the files' folder; nanoGPT has one meta for all files of a folder.
fs::path beside(const MappedFile& file, const char* name) {
  return fs::path(file.path()).parent_path() / name;
}

std::optional<Vocabulary> declared_by(const MappedFile& file) {
  if (has_token_header(file)) {
    const int64_t size = header_vocab_size(file);
    return size > 0 ? std::optional(Vocabulary::ids(size)) : std::nullopt;
  }
  std::error_code ignored;
  const fs::path meta = beside(file, "meta.json"), pickle = beside(file, "meta.pkl");
  if (fs::exists(meta, ignored)) {
    const MappedFile json(meta.string());
    return parse_nanogpt_meta(json.text(), json.path());
  }
  if (!fs::exists(pickle, ignored)) return std::nullopt;
  const MappedFile plain(pickle.string());
  return parse_nanogpt_meta(json_of_pickle(plain.text(), plain.path()), plain.path());
}

}  // namespace

Vocabulary parse_nanogpt_meta(std::string_view json, const std::string& where) {
  const Json meta = Json::parse(shallow_json(json, where), nullptr, false);
  const bool has_size = meta.is_object() && meta.contains("vocab_size") &&
                        meta["vocab_size"].is_number_integer() && meta["vocab_size"] > 0;
  check_input(has_size, where,
              ": must hold a \"vocab_size\" above 0, in a JSON object or a dictionary");
  const auto size = meta["vocab_size"].get<int64_t>();
  const bool has_itos = meta.contains("itos"), has_stoi = meta.contains("stoi");
  const Vocabulary ids = Vocabulary::ids(size);  // refuses sizes out of range
  if (!has_itos && !has_stoi) return ids;

  for (const char* key : {"itos", "stoi"}) {
    check_input(!meta.contains(key) || meta[key].size() == static_cast<size_t>(size), where,
                ": vocab_size is ", size, ", but \"", key, "\" has ",
                meta.contains(key) ? meta[key].size() : 0);
  }
  Tokens tokens(static_cast<size_t>(size));
  if (has_itos) read_itos(meta["itos"], tokens, where);
  if (has_stoi) {
    check_input(meta["stoi"].is_object(), where,
                ": \"stoi\" must be an object from character to id");
    for (const auto& [token, id] : meta["stoi"].items()) set_token(tokens, id, token, where);
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    check_input(!tokens[id].empty(), where, ": vocab_size is ", size, ", but id ", id,
                " has no character");
  }
  const Json chars{{"kind", "chars"}, {"size", size}, {"tokens", tokens}};
  return Vocabulary::from_json(chars.dump(), where);
}

std::optional<Vocabulary> declared_vocabulary(std::span<const MappedFile> files) {
  std::optional<Vocabulary> declared;
  const MappedFile* by = nullptr;
  for (const MappedFile& file : files) {
    std::optional<Vocabulary> vocabulary = declared_by(file);
    if (!vocabulary) continue;
    check_input(!declared || declared->to_json() == vocabulary->to_json(), file.path(), " and ",
                by ? by->path() : "",
                " must have the same vocabulary; what they say of it differs");
    declared = std::move(vocabulary);
    by = &file;
  }
  return declared;
}

}  // namespace xtrain
