#include "model/hf/special_ids.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"

namespace xtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

int64_t read_id(const Json& value, const std::string& where) {
  check_input(value.is_number_integer() && value >= 0, where,
              " must be an id, a list of ids or null; got ", excerpt(value));
  return value.get<int64_t>();
}

std::vector<int64_t> read_ids(const Json& json, const char* key, const std::string& path) {
  const Json& found = member(json, key);
  if (found.is_null()) return {};
  const std::string where = text(path, ": ", key);
  if (!found.is_array()) return {read_id(found, where)};
  std::vector<int64_t> ids;
  for (const Json& each : found) ids.push_back(read_id(each, where));
  return ids;
}

}  // namespace

SpecialIds read_special_ids(const std::string& folder) {
  SpecialIds ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = (fs::path(folder) / name).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    const MappedFile file(path);
    const Json json = Json::parse(checked_json_object(file.text(), path));
    const std::vector<int64_t> begin = read_ids(json, "bos_token_id", path);
    const std::vector<int64_t> end = read_ids(json, "eos_token_id", path);
    if (!ids.begin && !begin.empty()) ids.begin = begin[0];
    if (ids.end.empty()) ids.end = end;
  }
  return ids;
}

std::string generation_config_json(const SpecialIds& ids) {
  const Json end = ids.end.empty()       ? Json(nullptr)
                   : ids.end.size() == 1 ? Json(ids.end[0])
                                         : Json(ids.end);
  const Json json{{"bos_token_id", ids.begin ? Json(*ids.begin) : Json(nullptr)},
                  {"eos_token_id", end}};
  return json.dump(2) + "\n";
}

}  // namespace xtrain
