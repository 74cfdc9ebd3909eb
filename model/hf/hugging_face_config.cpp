#include "model/hf/hugging_face_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/config_reader.h"
#include "core/error.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::set<std::string>;

constexpr int64_t kQwen3HeadDim = 128;

std::string excerpt(const Json& value) {
  std::string dump = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return dump.size() > 80 ? dump.substr(0, 77) + "..." : dump;
}

// --- what keys mean ------------------------------------------------------------------------------

// Keys of the section "model" under these names; null: as if left out.
const Names kGpt2Keys{"vocab_size",          "n_embd",
                      "hidden_size",         "n_layer",
                      "num_hidden_layers",   "n_head",
                      "num_attention_heads", "n_inner",
                      "n_positions",         "max_position_embeddings",
                      "layer_norm_epsilon",  "initializer_range",
                      "embd_pdrop",          "resid_pdrop",
                      "attn_pdrop",          "tie_word_embeddings"};
const Names kLlamaKeys{
    "vocab_size",          "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",    "intermediate_size", "max_position_embeddings",
    "rms_norm_eps",        "rope_theta",  "initializer_range", "attention_dropout",
    "tie_word_embeddings"};

// What may be null instead of left out.
const Names kOptional{"n_inner", "num_key_value_heads", "head_dim"};

// Keys read apart.
const Names kSpecial{"model_type",         "hidden_act",      "activation_function",
                     "rope_scaling",       "rope_parameters", "layer_types",
                     "use_sliding_window", "sliding_window",  "max_window_layers"};

// Keys that say nothing about the arithmetic of a model's logits.
const Names kHarmless{"architectures",
                      "transformers_version",
                      "torch_dtype",
                      "dtype",
                      "use_cache",
                      "bos_token_id",
                      "eos_token_id",
                      "pad_token_id",
                      "sep_token_id",
                      "decoder_start_token_id",
                      "unk_token_id",
                      "_name_or_path",
                      "name_or_path",
                      "_attn_implementation_autoset",
                      "attn_implementation",
                      "_attn_implementation",
                      "task_specific_params",
                      "gradient_checkpointing",
                      "n_ctx",
                      "pretraining_tp",
                      "return_dict",
                      "return_dict_in_generate",
                      "output_attentions",
                      "output_hidden_states",
                      "output_scores",
                      "torchscript",
                      "id2label",
                      "label2id",
                      "num_labels",
                      "problem_type",
                      "finetuning_task",
                      "tokenizer_class",
                      "prefix",
                      "chunk_size_feed_forward",
                      "is_decoder",
                      "cross_attention_hidden_size",
                      "bad_words_ids",
                      "begin_suppress_tokens",
                      "suppress_tokens",
                      "forced_bos_token_id",
                      "forced_eos_token_id",
                      "exponential_decay_length_penalty",
                      "max_length",
                      "min_length",
                      "do_sample",
                      "early_stopping",
                      "num_beams",
                      "num_beam_groups",
                      "num_return_sequences",
                      "diversity_penalty",
                      "encoder_no_repeat_ngram_size",
                      "length_penalty",
                      "no_repeat_ngram_size",
                      "remove_invalid_values",
                      "repetition_penalty",
                      "temperature",
                      "top_k",
                      "top_p",
                      "typical_p",
                      "tf_legacy_loss",
                      "use_bfloat16",
                      "transformers.js_config",
                      "unsloth_fixed",
                      "unsloth_version",
                      "summary_activation",
                      "summary_first_dropout",
                      "summary_proj_to_labels",
                      "summary_type",
                      "summary_use_proj"};

// Keys that would change the arithmetic unless they have one of these values, or are null.
struct Neutral {
  const char* key;
  std::vector<Json> values;
};
const std::vector<Neutral>& neutral_keys() {
  static const std::vector<Neutral> keys{
      {"scale_attn_weights", {true}},
      {"scale_attn_by_inverse_layer_idx", {false}},
      {"reorder_and_upcast_attn", {false}},
      {"add_cross_attention", {false}},
      {"is_encoder_decoder", {false}},
      {"tie_encoder_decoder", {false}},
      {"pruned_heads", {Json::object()}},
      {"quantization_config", {}},
      {"compression_config", {}},
      {"partial_rotary_factor", {1.0, 1}},
      {"rotary_pct", {1.0, 1}},
      {"rope_interleaved", {false}},
      {"use_mrope", {false}},
      {"attention_multiplier", {}},
      {"query_pre_attn_scalar", {}},
      {"residual_multiplier", {1.0, 1}},
      {"embedding_multiplier", {1.0, 1}},
      {"logits_scaling", {1.0, 1}},
      {"logit_scale", {1.0, 1}},
      {"logits_scale", {1.0, 1}},
      {"attn_logit_softcapping", {}},
      {"final_logit_softcapping", {}},
      {"attn_temperature_tuning", {false}},
      {"no_rope_layers", {}},
      {"no_rope_layer_interval", {}},
      {"use_bidirectional_attention", {false}},
      {"use_qk_norm", {}},
      {"qk_layernorm", {}},
      {"qk_norm", {}},
      {"clip_qkv", {}},
      {"attention_sinks", {}},
      {"num_experts", {0}},
      {"num_local_experts", {0}},
      {"attention_bias", {false}},
      {"qkv_bias", {}},
      {"mlp_bias", {false}},
      {"lm_head_bias", {false}},
  };
  return keys;
}

const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

// --- reading -------------------------------------------------------------------------------------

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

  bool is_model_key(const std::string& key) const {
    if (key == "attention_bias") return type_ == ModelType::llama || type_ == ModelType::qwen3;
    if (key == "mlp_bias") return type_ == ModelType::llama;
    return (is_gpt2() ? kGpt2Keys : kLlamaKeys).contains(key);
  }

  void read_key(const std::string& key, const Json& value) {
    if (is_model_key(key)) {
      if (!value.is_null() || !kOptional.contains(key)) model_[key] = value;
      return;
    }
    if (kSpecial.contains(key) || kHarmless.contains(key)) return;
    // Qwen2 has its biases whatever this key says.
    if (type_ == ModelType::qwen2 && key == "attention_bias") return;
    for (const Neutral& neutral : neutral_keys()) {
      if (key != neutral.key) continue;
      if (value.is_null() || std::count(neutral.values.begin(), neutral.values.end(), value)) {
        return;
      }
      const std::string allowed = neutral.values.empty() ? "null" : neutral.values[0].dump();
      reject(key, value, text("it must be ", allowed, " or left out"));
    }
    ignored_.push_back(key);
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

// --- writing -------------------------------------------------------------------------------------

const char* architecture_of(ModelType type) {
  switch (type) {
    case ModelType::gpt2:
      return "GPT2LMHeadModel";
    case ModelType::llama:
      return "LlamaForCausalLM";
    case ModelType::qwen2:
      return "Qwen2ForCausalLM";
    case ModelType::qwen3:
      return "Qwen3ForCausalLM";
  }
  fail("hugging_face_config: unknown model_type");
}

void add_gpt2_keys(const ModelConfig& c, Json& json) {
  json["n_embd"] = c.hidden_size;
  json["n_layer"] = c.num_hidden_layers;
  json["n_head"] = c.num_attention_heads;
  json["n_inner"] = c.intermediate_size;
  json["n_positions"] = c.max_position_embeddings;
  json["n_ctx"] = c.max_position_embeddings;
  json["activation_function"] = c.activation == MlpKind::gelu ? "gelu_new" : "gelu";
  json["layer_norm_epsilon"] = c.rms_norm_eps;
  json["embd_pdrop"] = c.embd_pdrop;
  json["resid_pdrop"] = c.resid_pdrop;
  json["attn_pdrop"] = c.attn_pdrop;
}

void add_llama_keys(const ModelConfig& c, Json& json) {
  json["hidden_size"] = c.hidden_size;
  json["num_hidden_layers"] = c.num_hidden_layers;
  json["num_attention_heads"] = c.num_attention_heads;
  json["num_key_value_heads"] = c.num_key_value_heads;
  json["head_dim"] = c.head_dim;
  json["intermediate_size"] = c.intermediate_size;
  json["max_position_embeddings"] = c.max_position_embeddings;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = c.rms_norm_eps;
  json["rope_theta"] = c.rope_theta;
  json["rope_scaling"] = nullptr;
  json["rope_parameters"] = {{"rope_theta", c.rope_theta}, {"rope_type", "default"}};
  json["attention_dropout"] = c.attn_pdrop;
  if (c.model_type != ModelType::qwen2) json["attention_bias"] = c.attention_bias;
  if (c.model_type == ModelType::llama) json["mlp_bias"] = c.mlp_bias;
  if (c.model_type != ModelType::llama) json["use_sliding_window"] = false;
}

}  // namespace

HuggingFaceConfig read_hugging_face_config(std::string_view json, const std::string& path) {
  return Reading(Json::parse(checked_json_object(json, path)), path).result();
}

void check_hugging_face_config(const ModelConfig& c) {
  ModelConfig usual = c;
  // Biases of Llama and Qwen3 stand or fall together.
  usual.attention_bias = c.attention_bias && c.model_type != ModelType::qwen2;
  usual = with_defaults(usual);
  const bool gpt2 = c.model_type == ModelType::gpt2;
  const auto require = [&](bool holds, const char* key) {
    check_input(holds, "model.", key, " has a value that Hugging Face's models of model_type ",
                name_of(c.model_type), " do not have; the model cannot be written in their layout");
  };
  require(c.norm == usual.norm, "norm");
  require(c.positions == usual.positions, "positions");
  require(c.activation == usual.activation || (gpt2 && c.activation == MlpKind::gelu_erf),
          "activation");
  require(gpt2 || c.rope_pairing == RopePairing::halves, "rope_pairing");
  require(c.qk_norm == usual.qk_norm, "qk_norm");
  require(c.attention_bias == usual.attention_bias, "attention_bias");
  require(c.attention_output_bias == usual.attention_output_bias, "attention_output_bias");
  require(c.mlp_bias == usual.mlp_bias || c.model_type == ModelType::llama, "mlp_bias");
  require(!gpt2 || c.num_key_value_heads == c.num_attention_heads, "num_key_value_heads");
  require(!gpt2 || c.head_dim * c.num_attention_heads == c.hidden_size, "head_dim");
}

std::string hugging_face_config_json(const ModelConfig& c, const SpecialIds& ids,
                                     ElementType dtype) {
  check_hugging_face_config(c);
  Json json{{"architectures", Json::array({architecture_of(c.model_type)})},
            {"model_type", name_of(c.model_type)},
            {"vocab_size", c.vocab_size}};
  if (c.model_type == ModelType::gpt2) {
    add_gpt2_keys(c, json);
  } else {
    add_llama_keys(c, json);
  }
  json["initializer_range"] = c.initializer_range;
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  json.update(Json::parse(generation_config_json(ids)));
  json["use_cache"] = true;
  json["torch_dtype"] = torch_name(dtype);
  json["dtype"] = torch_name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace xtrain
