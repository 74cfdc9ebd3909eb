// config.json as it is written for Hugging Face's readers.

#include "model/hf/exported_config.h"

#include <nlohmann/json.hpp>

#include "model/hf/hugging_face_config.h"
#include "model/model_checks.h"
#include "support/rejection.h"

using namespace xtrain;
using Json = nlohmann::ordered_json;

namespace {

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a config that is written reads back, whatever the model", "[exported_config]") {
  std::vector<NamedConfig> models = small_models();
  models.resize(4);
  for (auto [name, config] : models) {
    INFO(name);
    config.attn_pdrop = 0.25;
    for (const bool tied : {false, true}) {
      config.tie_word_embeddings = tied;
      const std::string json = hugging_face_config_json(config, {7, {8}}, ElementType::bf16);
      const HuggingFaceConfig back = read_hugging_face_config(json, "written");
      config.initializer_range = back.model.initializer_range;
      CHECK(back.model == config);
      CHECK(back.ignored_keys.empty());
      const Json parsed = Json::parse(json);
      CHECK(parsed["torch_dtype"] == "bfloat16");
      CHECK(parsed["dtype"] == "bfloat16");
      CHECK(parsed["bos_token_id"] == 7);
      CHECK(parsed["eos_token_id"] == 8);
      CHECK(parsed["architectures"].is_array());
      CHECK(parsed["tie_word_embeddings"] == tied);
      if (config.model_type != ModelType::gpt2) {
        CHECK(parsed["head_dim"] == config.head_dim);
        CHECK(parsed["rope_parameters"]["rope_theta"] == parsed["rope_theta"]);
      }
      CHECK(json == hugging_face_config_json(config, {7, {8}}, ElementType::bf16));
    }
  }
  const Json none = Json::parse(hugging_face_config_json(models[0].config, {}, ElementType::f32));
  CHECK(none["eos_token_id"].is_null());
  CHECK(none["bos_token_id"].is_null());
}

TEST_CASE("what a kind of model cannot have is refused by name", "[exported_config]") {
  const std::vector<NamedConfig> models = small_models();
  const auto refused = [&](size_t model, auto change) {
    ModelConfig config = models[model].config;
    change(config);
    return rejection([&] { check_hugging_face_config(config); });
  };
  const size_t gpt2 = 0, llama = 1, qwen2 = 2, qwen3 = 3;
  using C = ModelConfig;
  CHECK(mentions(refused(llama, [](C& c) { c.norm = NormKind::layer; }), "model.norm"));
  CHECK(mentions(refused(llama, [](C& c) { c.positions = Positions::learned; }), "positions"));
  CHECK(mentions(refused(llama, [](C& c) { c.activation = MlpKind::gelu; }), "activation"));
  CHECK(mentions(refused(llama, [](C& c) { c.rope_pairing = RopePairing::adjacent; }),
                 "rope_pairing"));
  CHECK(mentions(refused(llama, [](C& c) { c.qk_norm = true; }), "qk_norm"));
  CHECK(mentions(refused(llama, [](C& c) { c.attention_bias = true; }), "attention_output_bias"));
  CHECK(mentions(refused(qwen2, [](C& c) { c.attention_bias = false; }), "attention_bias"));
  CHECK(mentions(refused(qwen3, [](C& c) { c.mlp_bias = true; }), "mlp_bias"));
  CHECK(mentions(refused(gpt2, [](C& c) { c.num_key_value_heads = 2; }), "num_key_value_heads"));
  CHECK(mentions(refused(gpt2, [](C& c) { c.head_dim = 8; }), "head_dim"));
  CHECK(refused(gpt2, [](C& c) { c.activation = MlpKind::gelu_erf; }) == "accepted");
  CHECK(refused(llama, [](C& c) {
          c.attention_bias = c.attention_output_bias = c.mlp_bias = true;
        }) == "accepted");
}
