#include "train/data/token_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"
#include "train/checksum.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kProgress = "progress.json";
constexpr const char* kKind = "xtrain tokens";

Json to_json(const std::vector<FinishedShard>& shards) {
  auto list = Json::array();
  for (const FinishedShard& shard : shards) {
    list.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"xxh3", shard.hash}});
  }
  return list;
}

Json to_json(const StreamState& stream) {
  return {{"documents", stream.documents},
          {"tokens", stream.tokens},
          {"text_bytes", stream.text_bytes},
          {"shards", to_json(stream.shards.finished)}};
}

Json to_json(const ReadPosition& position) {
  return {{"file", position.file},     {"offset", position.offset},
          {"line", position.line},     {"document", position.document},
          {"inside", position.inside}, {"at_line_start", position.at_line_start},
          {"bytes", position.bytes},   {"digest", position.digest}};
}

StreamState read_stream(const Json& json) {
  StreamState stream{json.at("documents"), json.at("tokens"), json.at("text_bytes"), {}};
  for (const Json& shard : json.at("shards")) {
    stream.shards.finished.push_back({shard.at("file"), shard.at("tokens"), shard.at("xxh3")});
  }
  stream.shards.open_tokens = json.value("open_tokens", int64_t{0});
  return stream;
}

ReadPosition read_position(const Json& json) {
  return {json.at("file"),   json.at("offset"),        json.at("line"),  json.at("document"),
          json.at("inside"), json.at("at_line_start"), json.at("bytes"), json.at("digest")};
}

Json parse_file(const std::string& path) {
  const MappedFile file(path);
  const Json json = Json::parse(shallow_json(file.text(), path), nullptr, false);
  check_input(json.is_object(), path, ": must be a JSON object");
  return json;
}

// The state in a complete manifest or in progress.json, which alone has a position.
TokenizeState read_state(const std::string& path) {
  const Json json = parse_file(path);
  TokenizeState state;
  try {
    if (json.contains("position")) state.position = read_position(json.at("position"));
    state.train = read_stream(json.at("train"));
    state.val = read_stream(json.at("val"));
  } catch (const nlohmann::json::exception&) {
    reject_input(path, ": does not hold what this program writes there; begin anew");
  }
  return state;
}

// The name of an input; null for one that is not there.
Json path_of(const Json& input) {
  return input.is_object() ? input.value("path", Json()) : Json();
}

// Says what differs first; nothing where the plans are equal.
std::string difference(const Json& before, const Json& now) {
  const auto was = [](const std::string& what, const Json& a, const Json& b) {
    return what + " was " + a.dump() + " and is " + b.dump();
  };
  for (const auto& [key, value] : now.items()) {
    const Json old = before.value(key, Json());
    if (old == value) continue;
    if (!value.is_array()) return was(key, old, value);
    for (size_t i = 0; i < std::max(old.size(), value.size()); ++i) {
      const Json a = i < old.size() ? old[i] : Json(), b = i < value.size() ? value[i] : Json();
      if (a == b) continue;
      if (path_of(a) != path_of(b)) {
        return was(key + " " + std::to_string(i + 1), path_of(a), path_of(b));
      }
      return (path_of(b).is_string() ? path_of(b).get<std::string>() : b.dump()) + " has changed";
    }
  }
  return "";
}

bool is_shard_name(std::string name, const std::string& prefix) {
  constexpr std::string_view kPartial = ".partial", kBin = ".bin";
  if (name.ends_with(kPartial)) name.resize(name.size() - kPartial.size());
  if (!name.ends_with(kBin)) return false;
  name.resize(name.size() - kBin.size());
  for (const std::string split : {"train", "val"}) {
    if (name == split) return true;
    const std::string start = prefix + '_' + split + '_';
    if (name.starts_with(start) && name.size() > start.size() &&
        name.find_first_not_of("0123456789", start.size()) == std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

TokenFolder::TokenFolder(std::string path, std::string plan, std::string tokenizer_name,
                         std::string tokenizer)
    : path_(std::move(path)),
      plan_(std::move(plan)),
      tokenizer_name_(std::move(tokenizer_name)),
      tokenizer_(std::move(tokenizer)) {}

TokenFolder::~TokenFolder() {
  if (lock_ >= 0) ::close(lock_);
}

// The lock lies on the folder itself, so nothing is left behind by a process that is killed.
void TokenFolder::lock() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(lock_ >= 0, path_, ": cannot open the folder");
  check(::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, path_,
        ": another process is at work in this folder");
}

std::string TokenFolder::file(std::string_view name) const {
  return (fs::path(path_) / name).string();
}

void TokenFolder::remove_files(const std::string& name) {
  std::vector<fs::path> doomed;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (is_shard_name(entry.path().filename().string(), name)) doomed.push_back(entry.path());
  }
  remove_leftovers();
  for (const std::string& own : {tokenizer_name_, tokenizer_name_ + ".partial"}) {
    doomed.push_back(file(own));
  }
  doomed.push_back(file(kManifest));
  for (const fs::path& path : doomed) fs::remove(path);
}

// There is a manifest, and nothing is to be removed.
std::optional<TokenizeState> TokenFolder::take_up() {
  const std::string manifest = file(kManifest), progress = file(kProgress);
  const Json found = parse_file(manifest);
  const std::string differs = difference(found.at("plan"), Json::parse(plan_));
  check_input(differs.empty(), path_, ": holds tokens made otherwise: ", differs,
              "; give --overwrite to begin anew, or another folder");
  complete_ = found.value("complete", false);
  if (complete_) remove_leftovers();
  if (!complete_ && !fs::exists(progress)) return std::nullopt;  // it had hardly begun
  const TokenizeState state = read_state(complete_ ? manifest : progress);
  check_files(state);
  return state;
}

// What is finished must be what was written.
void TokenFolder::check_files(const TokenizeState& state) const {
  const auto check_file = [&](const std::string& name, const std::string& hash) {
    check_input(fs::exists(file(name)), file(name), ": is missing; give --overwrite to begin anew");
    const MappedFile found(file(name));
    check_input(checksum_of(std::as_bytes(std::span(found.text()))) == hash, file(name),
                ": has been changed since it was written; give --overwrite to begin anew");
  };
  check_file(tokenizer_name_, checksum_of(std::as_bytes(std::span(std::string_view(tokenizer_)))));
  for (const StreamState* stream : {&state.train, &state.val}) {
    for (const FinishedShard& shard : stream->shards.finished) check_file(shard.file, shard.hash);
  }
}

void TokenFolder::begin(bool anew) {
  const std::string name = Json::parse(plan_).at("name");
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string found = entry.path().filename().string();
    const bool shard = is_shard_name(found, name);
    const bool other_tokenizer =
        found == tokenizer_name_ && MappedFile(entry.path().string()).text() != tokenizer_;
    check_input(!other_tokenizer && (!shard || anew), entry.path().string(),
                ": would be replaced, and there is no ", kManifest,
                " that says what it is; choose another folder");
  }
  if (anew) remove_files(name);
  write_file(file(tokenizer_name_), tokenizer_);
  write_file(
      file(kManifest),
      Json{{"kind", kKind}, {"complete", false}, {"plan", Json::parse(plan_)}}.dump(1) + "\n");
}

std::optional<TokenizeState> TokenFolder::open(bool anew) {
  std::error_code error;
  created_ = fs::create_directories(path_, error);
  check(!error, path_, ": cannot create the folder: ", error.message());
  lock();
  const std::string manifest = file(kManifest);
  if (fs::exists(manifest)) {
    const Json found = parse_file(manifest);
    check_input(found.value("kind", Json()) == kKind && found.value("plan", Json()).is_object(),
                manifest, ": is not this program's; choose another folder");
    if (!anew) return take_up();
    const std::string copy = found["plan"].value("tokenizer_file", tokenizer_name_);
    fs::remove(file(fs::path(copy).filename().string()));
    remove_files(found["plan"].value("name", "tokens"));
  }
  begin(anew);
  return std::nullopt;
}

void TokenFolder::save(const TokenizeState& state) {
  Json train = to_json(state.train), val = to_json(state.val);
  train["open_tokens"] = state.train.shards.open_tokens;
  val["open_tokens"] = state.val.shards.open_tokens;
  const Json json{{"position", to_json(state.position)}, {"train", train}, {"val", val}};
  write_file(file(kProgress), json.dump(1) + "\n");
}

void TokenFolder::complete(const TokenizeState& state) {
  const Json json{{"kind", kKind},
                  {"complete", true},
                  {"train", to_json(state.train)},
                  {"val", to_json(state.val)},
                  {"plan", Json::parse(plan_)}};
  write_file(file(kManifest), json.dump(1) + "\n");
  complete_ = true;
  remove_leftovers();
}

// Of a run that is complete; it may have been killed before it had cleared up.
void TokenFolder::remove_leftovers() {
  for (const char* name : {kProgress, "progress.json.partial", "manifest.json.partial"}) {
    fs::remove(file(name));
  }
}

void TokenFolder::remove() {
  remove_files(Json::parse(plan_).at("name"));
  std::error_code ignored;
  if (created_) fs::remove(path_, ignored);
}

std::string tokenizer_beside(const std::string& token_file) {
  const fs::path folder = fs::path(token_file).parent_path(), manifest = folder / kManifest;
  std::error_code ignored;
  if (!fs::is_regular_file(manifest, ignored)) return "";
  const MappedFile file(manifest.string());
  const Json json = Json::parse(shallow_json(file.text(), file.path()), nullptr, false);
  check_input(!json.is_discarded(), manifest.string(),
              ": is not JSON; it is damaged, so that what ", "the ids of ", token_file,
              " mean is not known");
  const Json plan =
      json.is_object() && json.value("kind", Json()) == kKind ? json.value("plan", Json()) : Json();
  const Json name = plan.is_object() ? plan.value("tokenizer_file", Json()) : Json();
  if (!name.is_string()) return "";
  const std::string path = (folder / fs::path(name.get<std::string>()).filename()).string();
  const MappedFile tokenizer(path);
  const Json hash = plan.value("tokenizer_xxh3", Json());
  check_input(!hash.is_string() || hash == checksum_of(std::as_bytes(std::span(tokenizer.text()))),
              path, ": is not the tokenizer that made ", token_file);
  return path;
}

}  // namespace xtrain
