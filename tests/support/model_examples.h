#pragma once
// Small models of every kind and random batches for them.

#include <string>
#include <vector>

#include "model/tiny_transformer.h"

namespace xtrain {

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

// GPT-2, Llama, Qwen2 and Qwen3 in small, and configurations that turn each switch by itself.
std::vector<NamedConfig> small_models(int64_t vocab_size = 11, int64_t max_positions = 16);

// B x T ids below vocab_size and targets of which every fifth is ignored.
TokenBatch random_batch(const Context& ctx, int64_t B, int64_t T, int64_t vocab_size,
                        uint64_t seed);

// Loss per counted token and every gradient by parameter name, as f64.
struct ModelValues {
  double loss = 0.0;
  std::vector<std::string> names;
  std::vector<std::vector<double>> gradients;
};
ModelValues loss_and_gradients(const Context& ctx, TinyTransformer& model, const TokenBatch& batch,
                               const Exec& exec);

}  // namespace xtrain
