#pragma once
// Writing on: tokens drawn from a model one after the other.

#include <cstdint>
#include <optional>
#include <vector>

#include "model/tiny_transformer.h"

namespace xtrain {

struct SampleOptions {
  int64_t max_new_tokens = 200;
  double temperature = 0.8;      // 0: always the likeliest token, the lowest id among equals
  std::optional<int64_t> top_k;  // draw among the k likeliest; none: among all
  uint64_t seed = 0;
  int64_t context_length = 0;  // tokens the model sees; longer texts are cut at the front
  int64_t vocab_size = 0;      // ids from here on are never drawn
};

// `count` continuations of one prompt (at least one token), prompt included. A function of the
// model's weights and the options alone.
std::vector<std::vector<int32_t>> sample(const Context& ctx, TinyTransformer& model,
                                         const Exec& exec, const std::vector<int32_t>& prompt,
                                         int64_t count, const SampleOptions& options);

}  // namespace xtrain
