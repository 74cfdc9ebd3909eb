#include "support/model_examples.h"

#include "core/copy.h"

namespace xtrain {
namespace {

ModelConfig small_config(ModelType type, int64_t vocab_size, int64_t max_positions) {
  ModelConfig config;
  config.model_type = type;
  config.vocab_size = vocab_size;
  config.hidden_size = 24;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config = with_defaults(config);
  config.num_key_value_heads = type == ModelType::gpt2 ? 4 : 2;
  config.intermediate_size = 20;
  config.max_position_embeddings = max_positions;
  // Larger than usual, so that every gradient stands clear of rounding.
  config.initializer_range = 0.3;
  return config;
}

}  // namespace

std::vector<NamedConfig> small_models(int64_t vocab_size, int64_t max_positions) {
  const auto small = [&](ModelType type) { return small_config(type, vocab_size, max_positions); };
  std::vector<NamedConfig> models{{"gpt2", small(ModelType::gpt2)},
                                  {"llama", small(ModelType::llama)},
                                  {"qwen2", small(ModelType::qwen2)},
                                  {"qwen3", small(ModelType::qwen3)}};
  const auto variant = [&](std::string name, auto change) {
    models.push_back({std::move(name), small(ModelType::llama)});
    change(models.back().config);
  };
  variant("layernorm", [](ModelConfig& c) { c.norm = NormKind::layer; });
  variant("gelu_erf", [](ModelConfig& c) { c.activation = MlpKind::gelu_erf; });
  variant("learned positions", [](ModelConfig& c) { c.positions = Positions::learned; });
  variant("adjacent rope pairs", [](ModelConfig& c) { c.rope_pairing = RopePairing::adjacent; });
  variant("tied", [](ModelConfig& c) { c.tie_word_embeddings = true; });
  variant("all biases",
          [](ModelConfig& c) { c.attention_bias = c.attention_output_bias = c.mlp_bias = true; });
  variant("one key head, wide heads", [](ModelConfig& c) {
    c.num_key_value_heads = 1;
    c.head_dim = 10;
  });
  return models;
}

TokenBatch random_batch(const Context& ctx, int64_t B, int64_t T, int64_t vocab_size,
                        uint64_t seed) {
  const RandomStream stream = random_stream(seed, 0, 0);
  std::vector<int32_t> inputs(B * T), targets(B * T);
  for (int64_t i = 0; i < B * T; ++i) {
    inputs[i] = static_cast<int32_t>(random_below(stream, 0, i, vocab_size));
    targets[i] =
        i % 5 == 3 ? kIgnoreIndex : static_cast<int32_t>(random_below(stream, 1, i, vocab_size));
  }
  return token_batch(ctx, inputs, targets, B);
}

ModelValues loss_and_gradients(const Context& ctx, TinyTransformer& model, const TokenBatch& batch,
                               const Exec& exec) {
  model.parameters().clear_grads();
  Tape tape(ctx);
  const Loss loss = model.loss(ctx, &tape, batch, exec);
  ModelValues values;
  const double sum = to_host<double>(ctx, cast(ctx, loss.sum.value, Dtype::f64))[0];
  values.loss = sum / static_cast<double>(to_host<int64_t>(ctx, loss.count)[0]);
  tape.backward(loss.sum);
  model.parameters().zero_missing_grads(ctx);
  for (const Parameter& p : model.parameters().list()) {
    values.names.push_back(p.name);
    values.gradients.push_back(to_host<double>(ctx, cast(ctx, p.grad, Dtype::f64)));
  }
  return values;
}

}  // namespace xtrain
