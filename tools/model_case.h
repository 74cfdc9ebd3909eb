#pragma once
// A model, its weights and a batch in one safetensors file, and what the model makes of them: how
// results are compared with another implementation's.
//
//   metadata          "config": {"model": {...}} with the keys of a config file
//   inputs, targets   [B, T] I32; a target of -100 does not count
//   NAME              every parameter, F64 or F32

#include <string>
#include <vector>

#include "model/config.h"
#include "model/exec.h"
#include "model/hf/safetensors.h"
#include "model/model_folder.h"

namespace xtrain {

class ModelCase {
 public:
  // InputError naming what does not fit, as in reading a safetensors file or a config.
  explicit ModelCase(const std::string& path);

  const SafetensorsFile& file() const { return file_; }
  const ModelConfig& config() const { return config_; }

 private:
  SafetensorsFile file_;
  ModelConfig config_;
};

struct NamedValues {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// The tensor of an F64, F32 or I32 entry as f64.
std::vector<double> values_of(const SafetensorsEntry& entry);

// "logits" [B, T, V], "loss" [1] summed over the targets that count, and "grad.NAME" of every
// parameter: the gradient of that sum. Weights are rounded to exec.dtype first. InputError when a
// parameter is missing or of another shape.
std::vector<NamedValues> compute(const Context& ctx, const ModelCase& model_case, const Exec& exec);

// "logits" [B, T, V] of a folder's model for the tensor "inputs" of a safetensors file.
NamedValues compute_logits(const Context& ctx, const ModelFolder& folder,
                           const SafetensorsFile& inputs, const Exec& exec);

}  // namespace xtrain
