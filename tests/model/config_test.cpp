#include "model/config.h"

#include "core/config_reader.h"
#include "support/catch.h"
#include "support/rejection.h"

namespace xtrain {
namespace {

ModelConfig sized(ModelType type, int64_t vocab, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t positions) {
  ModelConfig config;
  config.model_type = type;
  config.vocab_size = vocab;
  config.hidden_size = hidden;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.max_position_embeddings = positions;
  return with_defaults(config);
}

ModelConfig tiny() {
  return sized(ModelType::qwen3, 65, 64, 2, 4, 64);
}

std::string refusal(const ModelConfig& config) {
  return rejection([&] { validate(config); });
}

std::string heads_refusal(int64_t heads, int64_t kv_heads) {
  ModelConfig config = tiny();
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  return refusal(config);
}

TEST_CASE("model config: model_type sets the switches", "[model_config]") {
  const ModelConfig gpt2 = sized(ModelType::gpt2, 65, 64, 2, 4, 64);
  CHECK(gpt2.norm == NormKind::layer);
  CHECK(gpt2.rms_norm_eps == 1e-5);
  CHECK(gpt2.activation == MlpKind::gelu);
  CHECK(gpt2.positions == Positions::learned);
  CHECK_FALSE(gpt2.qk_norm);
  CHECK(gpt2.attention_bias);
  CHECK(gpt2.attention_output_bias);
  CHECK(gpt2.mlp_bias);
  CHECK(gpt2.tie_word_embeddings);
  CHECK(gpt2.intermediate_size == 256);

  const ModelConfig llama = sized(ModelType::llama, 65, 64, 2, 4, 64);
  CHECK(llama.norm == NormKind::rms);
  CHECK(llama.rms_norm_eps == 1e-6);
  CHECK(llama.activation == MlpKind::swiglu);
  CHECK(llama.positions == Positions::rope);
  CHECK_FALSE(llama.qk_norm);
  CHECK_FALSE(llama.attention_bias);
  CHECK_FALSE(llama.attention_output_bias);
  CHECK_FALSE(llama.mlp_bias);
  CHECK_FALSE(llama.tie_word_embeddings);
  CHECK(llama.intermediate_size == 192);

  ModelConfig qwen2 = llama;
  qwen2.model_type = ModelType::qwen2;
  qwen2.attention_bias = true;
  CHECK(sized(ModelType::qwen2, 65, 64, 2, 4, 64) == qwen2);

  ModelConfig qwen3 = llama;
  qwen3.model_type = ModelType::qwen3;
  qwen3.qk_norm = true;
  CHECK(sized(ModelType::qwen3, 65, 64, 2, 4, 64) == qwen3);
}

TEST_CASE("model config: sizes follow from the others", "[model_config]") {
  const ModelConfig config = sized(ModelType::llama, 65, 96, 2, 6, 64);
  CHECK(config.num_key_value_heads == 6);
  CHECK(config.head_dim == 16);
  CHECK(config.intermediate_size == 256);
  CHECK(refusal(config) == "accepted");
}

TEST_CASE("model config: attention_bias of llama and qwen3 includes the output, as in HF files",
          "[model_config]") {
  ModelConfig config;
  config.attention_bias = true;
  config.model_type = ModelType::llama;
  CHECK(with_defaults(config).attention_output_bias);
  config.model_type = ModelType::qwen3;
  CHECK(with_defaults(config).attention_output_bias);
  config.model_type = ModelType::qwen2;
  CHECK_FALSE(with_defaults(config).attention_output_bias);
}

TEST_CASE("model config: head counts that do not fit are refused naming both", "[model_config]") {
  const std::string must =
      "model.num_key_value_heads must be at least 1 and divide num_attention_heads; got "
      "num_key_value_heads ";
  CHECK(heads_refusal(3, 2) == must + "2 and num_attention_heads 3");
  CHECK(heads_refusal(7, 2) == must + "2 and num_attention_heads 7");
  CHECK(heads_refusal(4, 8) == must + "8 and num_attention_heads 4");
  CHECK(heads_refusal(4, 0) == must + "0 and num_attention_heads 4");
  CHECK(heads_refusal(4, -1) == must + "-1 and num_attention_heads 4");
  CHECK(heads_refusal(8, 2) == "accepted");
  CHECK(heads_refusal(8, 8) == "accepted");
  CHECK(heads_refusal(8, 1) == "accepted");
}

TEST_CASE("model config: a width that heads do not divide needs head_dim", "[model_config]") {
  ModelConfig config = sized(ModelType::llama, 65, 65, 2, 4, 64);
  CHECK(refusal(config) ==
        "model.hidden_size must be a multiple of num_attention_heads where head_dim is not given; "
        "got hidden_size 65 and num_attention_heads 4");
  config.head_dim = 16;
  CHECK(refusal(config) == "accepted");
}

TEST_CASE("model config: RoPE needs an even head_dim, learned positions do not", "[model_config]") {
  ModelConfig config = tiny();
  config.head_dim = 15;
  CHECK(refusal(config) ==
        "model.head_dim must be even where positions is rope; got head_dim 15 and positions rope");
  config.positions = Positions::learned;
  config.qk_norm = true;
  CHECK(refusal(config) ==
        "model.head_dim must be even where qk_norm is true; got head_dim 15 and qk_norm true");
  config.qk_norm = false;
  CHECK(refusal(config) == "accepted");
}

TEST_CASE("model config: values set by a program are checked against the ranges of the keys",
          "[model_config]") {
  ModelConfig config = tiny();
  config.head_dim = 258;
  CHECK(refusal(config) == "model.head_dim must be an integer from 1 to 256; got 258");
  config = tiny();
  config.num_hidden_layers = 0;
  CHECK(refusal(config) == "model.num_hidden_layers must be an integer from 1 to 10000; got 0");
  config = tiny();
  config.num_attention_heads = 0;
  CHECK(refusal(config) == "model.num_attention_heads must be an integer from 1 to 1024; got 0");
  config = tiny();
  config.attn_pdrop = 1;
  CHECK(refusal(config) == "model.attn_pdrop must be a number >= 0 and < 1; got 1");
}

// The number of weights that the published files of these models hold.
TEST_CASE("model config: parameter counts equal those of published models", "[model_config]") {
  const ModelConfig gpt2 = sized(ModelType::gpt2, 50257, 768, 12, 12, 1024);
  CHECK(parameter_count(gpt2) == 124'439'808);

  ModelConfig qwen2 = sized(ModelType::qwen2, 151936, 896, 24, 14, 32768);
  qwen2.num_key_value_heads = 2;
  qwen2.intermediate_size = 4864;
  qwen2.tie_word_embeddings = true;
  CHECK(parameter_count(qwen2) == 494'032'768);

  ModelConfig qwen3 = sized(ModelType::qwen3, 151936, 1024, 28, 16, 40960);
  qwen3.num_key_value_heads = 8;
  qwen3.head_dim = 128;
  qwen3.intermediate_size = 3072;
  qwen3.tie_word_embeddings = true;
  CHECK(parameter_count(qwen3) == 596'049'920);

  ModelConfig llama = sized(ModelType::llama, 128256, 4096, 32, 32, 8192);
  llama.num_key_value_heads = 8;
  llama.intermediate_size = 14336;
  CHECK(parameter_count(llama) == 8'030'261'248);
}

TEST_CASE("model config: the largest accepted sizes do not overflow", "[model_config]") {
  ModelConfig config = sized(ModelType::llama, 1 << 24, 1 << 17, 10'000, 1024, 1 << 24);
  config.head_dim = 256;
  config.intermediate_size = 1 << 20;
  config.norm = NormKind::layer;
  config.positions = Positions::learned;
  REQUIRE(refusal(config) == "accepted");
  // embeddings, positions, and 10,000 blocks of two norms, four projections and an MLP
  const double expected = 2.0 * 0x1p24 * 0x1p17 + 0x1p24 * 0x1p17 + 2 * 0x1p17 +
                          1e4 * (4 * 0x1p17 + 4 * 0x1p17 * 0x1p18 + 3 * 0x1p17 * 0x1p20);
  CHECK(static_cast<double>(parameter_count(config)) == expected);
}

TEST_CASE("model config: keys are read under Hugging Face's and nanoGPT's names",
          "[model_config]") {
  ModelConfig config;
  const ConfigSection section{"model", config_fields(config)};
  ConfigReader reader;
  reader.add_json(R"({"model": {"model_type": "gpt2", "n_layer": 3, "n_head": 5, "n_embd": 40,
      "block_size": 70, "n_inner": 90, "layer_norm_epsilon": 0.25, "dropout": 0.125}})",
                  "f.json");
  reader.read({section});
  CHECK(config.model_type == ModelType::gpt2);
  CHECK(config.num_hidden_layers == 3);
  CHECK(config.num_attention_heads == 5);
  CHECK(config.hidden_size == 40);
  CHECK(config.max_position_embeddings == 70);
  CHECK(config.intermediate_size == 90);
  CHECK(config.rms_norm_eps == 0.25);
  CHECK(config.embd_pdrop == 0.125);
  CHECK(config.resid_pdrop == 0.125);
  CHECK(config.attn_pdrop == 0.125);
}

}  // namespace
}  // namespace xtrain
