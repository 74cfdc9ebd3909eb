#pragma once
// The JSON header of a safetensors file.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf/safetensors.h"

namespace xtrain {

struct SafetensorsHeader {
  struct Tensor : SafetensorsInfo {
    int64_t begin = 0, end = 0;  // bytes, from the end of the header
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Checks the form: names given once, known dtypes, sizes of at least 0, two offsets. Whether the
// offsets fit together is for the caller to check. `path` is for errors (InputError).
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path);

std::string safetensors_header_json(const SafetensorsHeader& header);

}  // namespace xtrain
