#include "model/hf/hugging_face_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/config_reader.h"
#include "core/error.h"
#include "core/json_values.h"
#include "model/hf/hugging_face_keys.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kQwen3HeadDim = 128;

// One config.json under way to a ModelConfig.
class Reading {
 public:
  Reading(Json json, const std::string& path) : json_(std::move(json)), path_(path) {}

  HuggingFaceConfig result() {
    type_ = read_type();
    for (const auto& [key, value] : json_.items()) read_key(key, value);
    read_activation();
    read_rope();
    check_windows();
    require_sizes();
    return finish();
  }

 private:
  bool is_gpt2() const { return type_ == ModelType::gpt2; }

  [[noreturn]] void reject(const std::string& key, const Json& value,
                           const std::string& must) const {
    reject_input(path_, ": ", key, " is ", excerpt(value), ", which is not implemented; ", must);
  }

  ModelType read_type() {
    const Json& value = member(json_, "model_type");
    for (const ModelType type :
         {ModelType::gpt2, ModelType::llama, ModelType::qwen2, ModelType::qwen3}) {
      if (value == name_of(type)) return type;
    }
    reject_input(path_, ": model_type must be one of gpt2, llama, qwen2, qwen3; got ",
                 excerpt(value));
  }

  void read_key(const std::string& key, const Json& value) {
    if (is_model_key(type_, key)) {
      if (!value.is_null() || !may_be_null(key)) model_[key] = value;
      return;
    }
    if (is_harmless_key(type_, key)) return;
    const char* const neutral = neutral_value(key);
    if (!neutral) return ignored_.push_back(key);
    if (value.is_null() || value == Json::parse(neutral)) return;
    reject(key, value, text("it must be ", neutral, " or left out"));
  }

  void read_activation() {
    const char* const key = is_gpt2() ? "activation_function" : "hidden_act";
    const Json& value = member(json_, key);
    if (value.is_null()) return;
    if (is_gpt2()) {
      if (value == "gelu_new" || value == "gelu_pytorch_tanh") return;
      if (value != "gelu") reject(key, value, "it must be gelu_new, gelu_pytorch_tanh or gelu");
      model_["activation"] = "gelu_erf";
    } else if (value != "silu" && value != "swish") {
      reject(key, value, "it must be silu");
    }
  }

  // Older files have rope_theta and rope_scaling, newer ones both in rope_parameters.
  void read_rope() {
    const Json& scaling = member(json_, "rope_scaling");
    const Json& parameters = member(json_, "rope_parameters");
    check_rope("rope_scaling", scaling);
    check_rope("rope_parameters", parameters);
    if (is_gpt2()) return;
    for (const Json* rope : {&scaling, &parameters}) {
      const Json& theta = member(*rope, "rope_theta");
      if (theta.is_null()) continue;
      const auto given = model_.find("rope_theta");
      check_input(given == model_.end() || *given == theta, path_, ": rope_theta is ",
                  given == model_.end() ? "" : excerpt(*given), " and ", excerpt(theta),
                  "; the two places must agree");
      model_["rope_theta"] = theta;
    }
  }

  void check_rope(const char* key, const Json& rope) const {
    const char* const must = "only RoPE of type default is";
    if (rope.is_null()) return;
    if (!rope.is_object() || is_gpt2()) reject(key, rope, must);
    for (const auto& [name, value] : rope.items()) {
      const bool kind = name == "type" || name == "rope_type";
      const bool whole = name == "partial_rotary_factor" && value == 1;
      const bool harmless = value.is_null() || name == "rope_theta" || whole;
      if (!(kind ? value.is_null() || value == "default" : harmless)) {
        reject(text(key, ".", name), value, must);
      }
    }
  }

  // Whether some layer sees only a window of keys, as Qwen2's and Qwen3's class decides it.
  void check_windows() const {
    const Json& types = member(json_, "layer_types");
    const Json& use = member(json_, "use_sliding_window");
    const Json& window = member(json_, "sliding_window");
    const Json& full_layers = member(json_, "max_window_layers");
    const char* const must = "all layers must have full attention";
    if (!types.is_null()) {
      if (!types.is_array()) reject("layer_types", types, must);
      for (const Json& type : types) {
        if (type != "full_attention") reject("layer_types", types, must);
      }
    }
    if (type_ != ModelType::qwen2 && type_ != ModelType::qwen3) {
      if (!window.is_null()) reject("sliding_window", window, must);
      if (!use.is_null() && use != false) reject("use_sliding_window", use, must);
      return;
    }
    if (use.is_null() || use == false || window.is_null() || !types.is_null()) return;
    const Json& layers = member(json_, "num_hidden_layers");
    const bool all_full =
        full_layers.is_number() && layers.is_number() && full_layers >= layers && use == true;
    if (!all_full) {
      reject("use_sliding_window", use,
             text(must, "; sliding_window is ", excerpt(window), " and max_window_layers ",
                  excerpt(full_layers)));
    }
  }

  // transformers has defaults for sizes; a config that leans on them is more likely damaged.
  void require_sizes() const {
    static const std::vector<std::vector<const char*>> gpt2{
        {"vocab_size"},
        {"n_embd", "hidden_size"},
        {"n_layer", "num_hidden_layers"},
        {"n_head", "num_attention_heads"},
        {"n_positions", "max_position_embeddings"}};
    static const std::vector<std::vector<const char*>> llama{
        {"vocab_size"},          {"hidden_size"},       {"num_hidden_layers"},
        {"num_attention_heads"}, {"intermediate_size"}, {"max_position_embeddings"}};
    for (const auto& names : is_gpt2() ? gpt2 : llama) {
      const bool given = std::any_of(names.begin(), names.end(),
                                     [&](const char* name) { return model_.contains(name); });
      check_input(given, path_, ": ", names[0], " is required and missing");
    }
  }

  HuggingFaceConfig finish() {
    HuggingFaceConfig config;
    config.head_dim_given = type_ != ModelType::qwen3 || model_.contains("head_dim");
    if (!config.head_dim_given) model_["head_dim"] = kQwen3HeadDim;
    model_["model_type"] = name_of(type_);
    ConfigReader reader;
    reader.add_json(Json{{"model", model_}}.dump(), path_);
    config.model = read_model_config(reader);
    check_input(config.model.vocab_size > 0, path_, ": vocab_size must be at least 1; got 0");
    config.ignored_keys = std::move(ignored_);
    return config;
  }

  Json json_;
  const std::string& path_;
  ModelType type_ = ModelType::llama;
  Json model_ = Json::object();  // the section "model"
  std::vector<std::string> ignored_;
};

}  // namespace

HuggingFaceConfig read_hugging_face_config(std::string_view json, const std::string& path) {
  return Reading(Json::parse(checked_json_object(json, path)), path).result();
}

}  // namespace xtrain
