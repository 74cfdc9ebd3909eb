// config.json of Hugging Face's models.

#include "model/hf/hugging_face_config.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/rejection.h"

using namespace xtrain;
using Json = nlohmann::ordered_json;

namespace {

Json llama_json() {
  return Json::parse(R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 96, "max_position_embeddings": 128, "hidden_act": "silu",
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false})");
}

Json gpt2_json() {
  return Json::parse(R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 64, "n_layer": 2,
    "n_head": 4, "n_positions": 128, "layer_norm_epsilon": 1e-05,
    "activation_function": "gelu_new", "embd_pdrop": 0.1, "resid_pdrop": 0.2, "attn_pdrop": 0.3})");
}

Json qwen3_json() {
  Json json = llama_json();
  json["model_type"] = "qwen3";
  return json;
}

HuggingFaceConfig read(const Json& json) {
  return read_hugging_face_config(json.dump(), "config.json");
}

// The message for the config with one key set.
std::string refusal(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return rejection([&] { read(json); });
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a Llama config is read", "[hugging_face_config]") {
  const HuggingFaceConfig config = read(llama_json());
  const ModelConfig& m = config.model;
  CHECK(m.model_type == ModelType::llama);
  CHECK(m.vocab_size == 32000);
  CHECK(m.hidden_size == 64);
  CHECK(m.num_hidden_layers == 2);
  CHECK(m.num_attention_heads == 4);
  CHECK(m.num_key_value_heads == 2);
  CHECK(m.head_dim == 32);
  CHECK(m.intermediate_size == 96);
  CHECK(m.max_position_embeddings == 128);
  CHECK(m.rms_norm_eps == 1e-5);
  CHECK(m.rope_theta == 500000.0);
  CHECK(m.norm == NormKind::rms);
  CHECK(m.activation == MlpKind::swiglu);
  CHECK_FALSE(m.tie_word_embeddings);
  CHECK_FALSE(m.attention_bias);
  CHECK(config.ignored_keys.empty());
}

TEST_CASE("a GPT-2 config is read", "[hugging_face_config]") {
  const ModelConfig m = read(gpt2_json()).model;
  CHECK(m.model_type == ModelType::gpt2);
  CHECK(m.hidden_size == 64);
  CHECK(m.intermediate_size == 256);
  CHECK(m.head_dim == 16);
  CHECK(m.num_key_value_heads == 4);
  CHECK(m.positions == Positions::learned);
  CHECK(m.norm == NormKind::layer);
  CHECK(m.rms_norm_eps == 1e-5);
  CHECK(m.activation == MlpKind::gelu);
  CHECK(m.attention_bias);
  CHECK(m.attention_output_bias);
  CHECK(m.mlp_bias);
  CHECK(m.embd_pdrop == 0.1);
  CHECK(m.resid_pdrop == 0.2);
  CHECK(m.attn_pdrop == 0.3);
  Json exact = gpt2_json();
  exact["activation_function"] = "gelu";
  CHECK(read(exact).model.activation == MlpKind::gelu_erf);
  exact["activation_function"] = "gelu_pytorch_tanh";
  CHECK(read(exact).model.activation == MlpKind::gelu);
  exact["n_inner"] = 100;
  CHECK(read(exact).model.intermediate_size == 100);
  exact["n_inner"] = nullptr;
  CHECK(read(exact).model.intermediate_size == 256);
}

TEST_CASE("old and new spellings mean the same", "[hugging_face_config]") {
  const ModelConfig old = read(llama_json()).model;
  Json json = llama_json();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  json["dtype"] = "bfloat16";
  CHECK(read(json).model == old);
  json["rope_theta"] = 500000.0;
  CHECK(read(json).model == old);
  json["rope_theta"] = 10000.0;
  CHECK(mentions(rejection([&] { read(json); }), "rope_theta is 10000.0 and 500000.0"));
  Json scaled = llama_json();
  for (const Json& neutral : {Json(nullptr), Json{{"type", "default"}},
                              Json{{"rope_type", "default"}, {"partial_rotary_factor", 1.0}}}) {
    scaled["rope_scaling"] = neutral;
    CHECK(read(scaled).model == old);
  }
  Json gpt2 = gpt2_json();
  for (const auto& [short_name, name] : {std::pair{"n_embd", "hidden_size"},
                                         {"n_layer", "num_hidden_layers"},
                                         {"n_head", "num_attention_heads"},
                                         {"n_positions", "max_position_embeddings"}}) {
    gpt2[name] = gpt2[short_name];
    gpt2.erase(short_name);
  }
  CHECK(read(gpt2).model == read(gpt2_json()).model);
}

TEST_CASE("what a config leaves out is what transformers takes", "[hugging_face_config]") {
  Json json = llama_json();
  for (const char* key : {"num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta",
                          "tie_word_embeddings", "hidden_act"}) {
    json.erase(key);
  }
  const ModelConfig m = read(json).model;
  CHECK(m.num_key_value_heads == 4);
  CHECK(m.head_dim == 16);
  CHECK(m.rms_norm_eps == 1e-6);
  CHECK(m.rope_theta == 10000.0);
  json["head_dim"] = nullptr;
  json["num_key_value_heads"] = nullptr;
  CHECK(read(json).model == m);
  for (const auto& [type, tied] : {std::pair{"llama", false}, {"qwen2", false}, {"qwen3", false}}) {
    json["model_type"] = type;
    CHECK(read(json).model.tie_word_embeddings == tied);
  }
  CHECK(read(gpt2_json()).model.tie_word_embeddings);
  json["model_type"] = "qwen3";
  CHECK(read(json).model.head_dim == 128);
  CHECK_FALSE(read(json).head_dim_given);
}

TEST_CASE("biases are those that each kind has", "[hugging_face_config]") {
  Json json = llama_json();
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  ModelConfig m = read(json).model;
  CHECK((m.attention_bias && m.attention_output_bias && m.mlp_bias));
  json.erase("mlp_bias");
  json["model_type"] = "qwen3";
  m = read(json).model;
  CHECK((m.attention_bias && m.attention_output_bias && !m.mlp_bias && m.qk_norm));
  json["model_type"] = "qwen2";
  json["attention_bias"] = false;
  m = read(json).model;
  CHECK((m.attention_bias && !m.attention_output_bias && !m.mlp_bias && !m.qk_norm));
}

TEST_CASE("keys that change the arithmetic are refused by name with their value",
          "[hugging_face_config]") {
  const Json linear{{"type", "linear"}, {"factor", 2.0}};
  const Json llama3{{"rope_type", "llama3"}, {"rope_theta", 1e4}, {"factor", 8.0}};
  const Json partial{{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  struct Case {
    Json config;
    std::string key;
    Json value;
    std::string said;
  };
  const std::vector<Case> cases{
      {llama_json(), "rope_scaling", linear, "rope_scaling.type is \"linear\""},
      {llama_json(), "rope_parameters", llama3, "rope_parameters.rope_type is \"llama3\""},
      {llama_json(), "rope_parameters", partial, "rope_parameters.partial_rotary_factor is 0.5"},
      {llama_json(), "rope_scaling", "yarn", "rope_scaling is \"yarn\""},
      {llama_json(), "partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5"},
      {llama_json(), "hidden_act", "gelu", "hidden_act is \"gelu\""},
      {llama_json(), "sliding_window", 4096, "sliding_window is 4096"},
      {llama_json(), "quantization_config", Json{{"bits", 4}},
       "quantization_config is {\"bits\":4}"},
      {llama_json(), "logits_scaling", 8.0, "logits_scaling is 8.0"},
      {llama_json(), "attention_multiplier", 0.1, "attention_multiplier is 0.1"},
      {llama_json(), "residual_multiplier", 0.2, "residual_multiplier is 0.2"},
      {llama_json(), "embedding_multiplier", 12.0, "embedding_multiplier is 12.0"},
      {llama_json(), "final_logit_softcapping", 30.0, "final_logit_softcapping is 30.0"},
      {llama_json(), "num_local_experts", 8, "num_local_experts is 8"},
      {qwen3_json(), "mlp_bias", true, "mlp_bias is true"},
      {qwen3_json(), "layer_types", Json{"full_attention", "sliding_attention"},
       "layer_types is [\"full_attention\",\"sliding_attention\"]"},
      {gpt2_json(), "activation_function", "relu", "activation_function is \"relu\""},
      {gpt2_json(), "scale_attn_by_inverse_layer_idx", true,
       "scale_attn_by_inverse_layer_idx is true"},
      {gpt2_json(), "reorder_and_upcast_attn", true, "reorder_and_upcast_attn is true"},
      {gpt2_json(), "scale_attn_weights", false, "scale_attn_weights is false"},
      {gpt2_json(), "add_cross_attention", true, "add_cross_attention is true"},
      {gpt2_json(), "attention_bias", true, "attention_bias is true"},
      {gpt2_json(), "rope_scaling", linear, "rope_scaling is {"},
  };
  for (const auto& [config, key, value, said] : cases) {
    const std::string message = refusal(config, key, value);
    INFO(message);
    CHECK(message.starts_with("config.json: " + said));
    CHECK(mentions(message, "is not implemented"));
    CHECK(rejection([&, c = config, k = key] {
            Json null = c;
            null[k] = nullptr;
            read(null);
          }) == "accepted");
  }
}

TEST_CASE("sliding windows count only where layers use them", "[hugging_face_config]") {
  Json json = qwen3_json();
  json["sliding_window"] = 64;
  json["use_sliding_window"] = false;
  json["max_window_layers"] = 0;
  CHECK(rejection([&] { read(json); }) == "accepted");
  json["use_sliding_window"] = true;
  CHECK(mentions(rejection([&] { read(json); }), "use_sliding_window is true"));
  json["max_window_layers"] = 2;  // all layers come before the first that would use it
  CHECK(rejection([&] { read(json); }) == "accepted");
  json["max_window_layers"] = 1;
  CHECK(mentions(rejection([&] { read(json); }), "sliding_window is 64"));
  json["layer_types"] = {"full_attention", "full_attention"};
  CHECK(rejection([&] { read(json); }) == "accepted");
  json.erase("layer_types");
  json["sliding_window"] = nullptr;
  CHECK(rejection([&] { read(json); }) == "accepted");
}

TEST_CASE("values and keys of a Hugging Face config are checked", "[hugging_face_config]") {
  for (const Json& bad : {Json(2.7), Json(-1), Json(0), Json(4294967298), Json("64"), Json(true),
                          Json(nullptr), Json::array()}) {
    const std::string message = refusal(llama_json(), "num_hidden_layers", bad);
    INFO(message);
    CHECK(message.starts_with("config.json: model.num_hidden_layers must be an integer"));
  }
  CHECK(mentions(refusal(llama_json(), "rms_norm_eps", "x"), "rms_norm_eps must be a number"));
  CHECK(rejection([&] {
          Json json = llama_json();
          json["rope_theta"] = 10000;  // an integer for a number
          read(json);
        }) == "accepted");
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "intermediate_size", "max_position_embeddings"}) {
    Json json = llama_json();
    json.erase(key);
    CHECK(rejection([&] { read(json); }) == text("config.json: ", key, " is required and missing"));
  }
  CHECK(mentions(refusal(llama_json(), "model_type", "mistral"), "model_type must be one of"));
  CHECK(mentions(refusal(llama_json(), "model_type", 7), "got 7"));
  CHECK(mentions(refusal(llama_json(), "num_key_value_heads", 3), "num_key_value_heads 3"));
  CHECK(mentions(refusal(llama_json(), "vocab_size", 0), "vocab_size must be at least 1"));
  const auto said = [](const std::string& text) {
    return rejection([&] { read_hugging_face_config(text, "f.json"); });
  };
  CHECK(said("").starts_with("f.json: "));
  CHECK(said("[]") == "f.json: must hold a JSON object; got []");
  CHECK(said("{\"a\": 1,}").starts_with("f.json:1:9: not valid JSON"));
  CHECK(mentions(said("{\"a\": 1, \"a\": 2}"), "key \"a\" is given twice"));
  CHECK(mentions(said("{\"rope_theta\": 1e400}"), "not valid JSON"));
  CHECK(rejection([] {
          read_hugging_face_config("\xEF\xBB\xBF" + llama_json().dump(), "f.json");
        }) == "accepted");
}

TEST_CASE("keys that are not known are listed", "[hugging_face_config]") {
  Json json = llama_json();
  json["transformers_version"] = "4.40.0";
  json["architectures"] = {"LlamaForCausalLM"};
  json["summary_type"] = "mean";
  json["my_own_key"] = 3;
  json["another"] = {{"nested", true}};
  CHECK(read(json).ignored_keys == std::vector<std::string>{"my_own_key", "another"});
}
