#pragma once
// Ids that texts begin and end with, as a model's folder says it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xtrain {

struct SpecialIds {
  std::optional<int64_t> begin;
  std::vector<int64_t> end;  // a text ends at any of them

  bool operator==(const SpecialIds&) const = default;
};

// bos_token_id and eos_token_id of generation_config.json or, where that does not give one, of a
// Hugging Face config.json. None where neither file does. Throws InputError naming file and key.
SpecialIds read_special_ids(const std::string& folder);

std::string generation_config_json(const SpecialIds& ids);

}  // namespace xtrain
