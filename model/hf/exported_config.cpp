#include "model/hf/exported_config.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

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
