#pragma once
// A transformer whose next token depends on the last one alone, by a table that a test gives.

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/copy.h"
#include "model/tiny_transformer.h"
#include "train/data/token_source.h"

namespace xtrain {

using Table = std::vector<std::vector<double>>;  // logits of the next token by the last

// Embeddings are unit vectors, the layer's projections are 0, and the head holds the table over the
// length that the norm gives a unit vector.
inline std::unique_ptr<TinyTransformer> bigram_model(const Context& ctx, const Table& table,
                                                     int64_t max_positions = 16) {
  const auto V = static_cast<int64_t>(table.size());
  ModelConfig config;
  config.model_type = ModelType::llama;
  config.vocab_size = V;
  config.hidden_size = V;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 1;
  config = with_defaults(config);
  config.head_dim = 2;
  config.intermediate_size = 2;
  config.max_position_embeddings = max_positions;
  auto model = std::make_unique<TinyTransformer>(ctx, config, Dtype::f64);
  const int64_t C = config.hidden_size;
  const double length =
      1.0 / std::sqrt(1.0 / static_cast<double>(C) + model->config().rms_norm_eps);
  for (Parameter& p : model->parameters().list()) {
    std::vector<double> values(static_cast<size_t>(p.value.numel()));
    for (int64_t v = 0; v < V; ++v) {
      for (int64_t last = 0; last < V; ++last) {
        const double logit = table[static_cast<size_t>(last)][static_cast<size_t>(v)];
        if (p.name == "lm_head.weight") values[static_cast<size_t>(v * C + last)] = logit / length;
      }
      if (p.name == "model.embed_tokens.weight") values[static_cast<size_t>(v * C + v)] = 1.0;
    }
    if (p.name == "model.norm.weight") values.assign(values.size(), 1.0);
    copy(ctx, from_host(ctx, values, p.shape), p.value);
  }
  return model;
}

// -log p(next | last) by the table's first `vocab_size` columns.
inline double bigram_loss(const Table& table, int32_t last, int32_t next, int64_t vocab_size) {
  double sum = 0.0;
  const std::vector<double>& row = table[static_cast<size_t>(last)];
  for (int64_t v = 0; v < vocab_size; ++v) sum += std::exp(row[static_cast<size_t>(v)]);
  return std::log(sum) - row[static_cast<size_t>(next)];
}

// A table without order.
inline Table mixed_table(int64_t size) {
  Table table(static_cast<size_t>(size), std::vector<double>(static_cast<size_t>(size)));
  for (int64_t i = 0; i < size * size; ++i) {
    table[static_cast<size_t>(i / size)][static_cast<size_t>(i % size)] =
        static_cast<double>(i * 37 % 23) / 5.0 - 2.0;
  }
  return table;
}

inline Exec f64_exec(AttentionKind attention = AttentionKind::flash) {
  Exec exec;
  exec.dtype = Dtype::f64;
  exec.attention = attention;
  return exec;
}

// Ids held in memory; those listed in `masked` are no targets.
class ListSource final : public TokenSource {
 public:
  explicit ListSource(std::vector<int32_t> ids, std::vector<bool> masked = {})
      : ids_(std::move(ids)), masked_(std::move(masked)) {
    masked_.resize(ids_.size());
  }
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  void read(int64_t offset, std::span<int32_t> out) const override {
    check_range(*this, offset, static_cast<int64_t>(out.size()));
    std::copy_n(ids_.begin() + offset, out.size(), out.begin());
  }
  void mask_targets(int64_t offset, std::span<int32_t> targets) const override {
    for (size_t i = 0; i < targets.size(); ++i) {
      if (masked_[static_cast<size_t>(offset) + i]) targets[i] = kIgnoreIndex;
    }
  }
  std::string name() const override { return "list"; }
  std::string reader() const override { return "list"; }

 private:
  std::vector<int32_t> ids_;
  std::vector<bool> masked_;
};

}  // namespace xtrain
