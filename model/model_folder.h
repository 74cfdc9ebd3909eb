#pragma once
// A folder that holds a model, of either kind:
//
//   Hugging Face   config.json with a model_type, model.safetensors or shards with
//                  model.safetensors.index.json; see hf/hugging_face_config.h and hf/layout.h
//   xtrain         config.json with a section "model", model.safetensors with the parameters under
//                  their own names: a checkpoint, or what `convert import` writes

#include <string>
#include <vector>

#include "autodiff/parameter.h"
#include "model/config.h"
#include "model/hf/layout.h"
#include "model/hf/tensor_files.h"

namespace xtrain {

class ModelFolder {
 public:
  // Reads config and headers, and checks that tensors and config agree exactly: every parameter
  // there, of the right shape and a floating type, and nothing left over. Values are read when they
  // are loaded. Throws InputError naming the file and the key or tensor.
  explicit ModelFolder(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_hugging_face() const { return is_hugging_face_; }
  const ModelConfig& config() const { return config_; }
  // What the user should judge: a line for each key of the config that is not known here and was
  // passed over.
  std::vector<std::string> notes() const;

  // Fills every parameter, cast to its dtype, on its device. InputError when the set is that of
  // another model, when a tied model has a head that is not its embedding, and naming the tensor
  // where a value is not finite in that dtype.
  void load(const Context& ctx, ParameterSet& parameters) const;
  // The same for one parameter.
  void load(const Context& ctx, Parameter& parameter) const;
  // Into a tensor of the parameter's shape, by rows or by columns, or of some of its rows, from
  // first_row on.
  void load(const Context& ctx, const std::string& parameter, Tensor target,
            int64_t first_row = 0) const;

  const TensorFiles& tensors() const { return tensors_; }
  const ParameterLayout& layout_of(const std::string& parameter) const;  // InputError for others
  // InputError when a tied model has a head that is not its embedding. Reads both.
  void check_tied_head() const;

 private:
  void read_config();
  bool has_prefix() const;
  void check_tensors() const;

  std::string path_;
  TensorFiles tensors_;
  bool is_hugging_face_ = false;
  ModelConfig config_;
  std::vector<std::string> ignored_keys_;
  ModelLayout layout_;
  std::map<std::string, size_t> index_;  // of layout_.parameters
};

}  // namespace xtrain
