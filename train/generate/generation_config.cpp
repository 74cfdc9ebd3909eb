#include "train/generate/generation_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/json_values.h"
#include "core/mapped_file.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;

// The value of a key; none when it is missing or null.
class Reader {
 public:
  Reader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  std::optional<double> number(const char* key) const {
    return value<double>(key, "a number", [](const Json& v) { return v.is_number(); });
  }
  std::optional<int64_t> integer(const char* key) const {
    return value<int64_t>(key, "a whole number", [](const Json& v) {
      return v.is_number_integer() &&
             (!v.is_number_unsigned() || v.get<uint64_t>() <= uint64_t{INT64_MAX});
    });
  }
  std::optional<bool> flag(const char* key) const {
    return value<bool>(key, "true or false", [](const Json& v) { return v.is_boolean(); });
  }

 private:
  template <class T, class Fits>
  std::optional<T> value(const char* key, const char* kind, const Fits& fits) const {
    const Json& found = member(json_, key);
    if (found.is_null()) return std::nullopt;
    check_input(fits(found), path_, ": ", key, " must be ", kind, "; got ", excerpt(found));
    return found.get<T>();
  }

  const Json& json_;
  const std::string& path_;
};

void check_ranges(const GenerationConfig& config, const std::string& path) try {
  check_input(config.top_k.value_or(0) >= 0, "top_k must be 0, for all tokens, or more; got ",
              config.top_k.value_or(0));
  check_input(config.max_new_tokens.value_or(0) >= 0, "max_new_tokens must be 0 or more; got ",
              config.max_new_tokens.value_or(0));
  validate(sampling_options(config));
} catch (const InputError& error) {
  reject_input(path, ": ", error.what());
}

}  // namespace

std::optional<GenerationConfig> read_generation_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "generation_config.json").string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const MappedFile file(path);
  const Json json = Json::parse(checked_json_object(file.text(), path));
  const Reader reader(json, path);
  GenerationConfig config;
  config.do_sample = reader.flag("do_sample");
  config.temperature = reader.number("temperature");
  config.top_k = reader.integer("top_k");
  config.top_p = reader.number("top_p");
  config.min_p = reader.number("min_p");
  config.repetition_penalty = reader.number("repetition_penalty");
  config.max_new_tokens = reader.integer("max_new_tokens");
  check_ranges(config, path);
  return config;
}

SamplingOptions sampling_options(const std::optional<GenerationConfig>& config) {
  SamplingOptions options;
  if (!config) return options;
  options.repetition_penalty = config->repetition_penalty.value_or(1.0);
  const bool silent = !config->do_sample && !config->temperature && !config->top_k &&
                      !config->top_p && !config->min_p;
  if (silent) return options;
  const bool samples = config->do_sample.value_or(false);
  options.temperature = samples ? config->temperature.value_or(1.0) : 0.0;
  if (config->top_k && *config->top_k != 0) options.top_k = config->top_k;
  options.top_p = config->top_p.value_or(1.0);
  options.min_p = config->min_p.value_or(0.0);
  return options;
}

}  // namespace xtrain
