#include "model/tiny_transformer.h"

#include <numeric>

#include "core/copy.h"
#include "core/error.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

constexpr uint64_t kEmbeddingSite = 0;
constexpr uint64_t kFirstLayerSite = 1;

Tensor counted_up(const Context& ctx, int64_t count) {
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return from_host(ctx, numbers, {count});
}

}  // namespace

TokenBatch token_batch(const Context& ctx, std::span<const int32_t> inputs,
                       std::span<const int32_t> targets, int64_t batch_size) {
  const int64_t count = static_cast<int64_t>(inputs.size());
  check(batch_size > 0 && count % batch_size == 0, "token_batch: ", count, " ids do not fill ",
        batch_size, " rows");
  const Shape shape{batch_size, count / batch_size};
  TokenBatch batch;
  batch.inputs = from_host(ctx, inputs, shape);
  if (!targets.empty()) batch.targets = from_host(ctx, targets, shape);
  return batch;
}

TinyTransformer::TinyTransformer(const Context& ctx, const ModelConfig& config, Dtype dtype)
    : config_(config), dtype_(dtype) {
  validate(config);
  check_input(config.vocab_size > 0, "model.vocab_size must be at least 1; got ",
              config.vocab_size);
  const double std = config.initializer_range;
  const int64_t V = config.vocab_size, C = config.hidden_size;
  embedding_ =
      &parameters_.add("model.embed_tokens.weight", {V, C}, ParameterKind::embedding, 0.0, std);
  if (config.positions == Positions::learned) {
    position_embedding_ =
        &parameters_.add("model.embed_positions.weight", {config.max_position_embeddings, C},
                         ParameterKind::embedding, 0.0, std);
  } else {
    rope_ =
        rope_table(ctx, config.max_position_embeddings, config.head_dim, config.rope_theta, dtype);
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.emplace_back(parameters_, text("model.layers.", i), config,
                         kFirstLayerSite + DecoderLayer::kSites * static_cast<uint64_t>(i));
  }
  final_norm_ = Norm(parameters_, "model.norm", config);
  head_ = config.tie_word_embeddings
              ? embedding_
              : &parameters_.add("lm_head.weight", {V, C}, ParameterKind::matrix, 0.0, std);
  positions_ = counted_up(ctx, config.max_position_embeddings);
  parameters_.allocate(ctx, dtype);
}

void TinyTransformer::initialize(const Context& ctx, uint64_t seed) {
  for (Parameter& p : parameters_.list()) copy(ctx, initial_value(ctx, p, seed), p.value);
}

Loss TinyTransformer::loss(const Context& ctx, Tape* tape, const TokenBatch& batch,
                           const Exec& exec) {
  check(batch.targets.defined() && batch.targets.shape() == batch.inputs.shape(),
        "loss: targets must have the shape of the inputs ", batch.inputs.shape());
  const int64_t rows = batch.inputs.numel();
  const Var x = reshape(ctx, hidden(ctx, tape, batch.inputs, exec), {rows, config_.hidden_size});
  const Var head = use(tape, *head_);
  const Tensor targets = batch.targets.reshape({rows});
  const int64_t V = config_.vocab_size;
  return exec.fused ? linear_cross_entropy(ctx, x, head, targets, V, kIgnoreIndex)
                    : linear_cross_entropy_composed(ctx, x, head, targets, V, kIgnoreIndex);
}

Tensor TinyTransformer::losses(const Context& ctx, const TokenBatch& batch, const Exec& exec,
                               int64_t vocab_size) {
  check(batch.targets.defined() && batch.targets.shape() == batch.inputs.shape(),
        "losses: targets must have the shape of the inputs ", batch.inputs.shape());
  const int64_t rows = batch.inputs.numel();
  const Tensor x = hidden(ctx, nullptr, batch.inputs, exec).value;
  return linear_cross_entropy_rows(ctx, x.reshape({rows, config_.hidden_size}),
                                   use(nullptr, *head_).value, batch.targets.reshape({rows}),
                                   vocab_size)
      .reshape(batch.inputs.shape());
}

Var TinyTransformer::logits(const Context& ctx, Tape* tape, const TokenBatch& batch,
                            const Exec& exec) {
  return linear(ctx, hidden(ctx, tape, batch.inputs, exec), use(tape, *head_), Var());
}

Var TinyTransformer::next_logits(const Context& ctx, Tape* tape, const TokenBatch& batch,
                                 const Exec& exec) {
  const Var x = hidden(ctx, tape, batch.inputs, exec);
  const Var last = slice(ctx, x, 1, x.size(1) - 1, 1);
  return linear(ctx, reshape(ctx, last, {x.size(0), x.size(2)}), use(tape, *head_), Var());
}

// [B, T, C] after the final norm.
Var TinyTransformer::hidden(const Context& ctx, Tape* tape, const Tensor& inputs,
                            const Exec& exec) {
  const Pass pass = pass_for(ctx, tape, inputs, exec);
  Var x = embedding(ctx, use(tape, *embedding_), inputs);
  if (position_embedding_) {
    x = add(ctx, x, embedding(ctx, use(tape, *position_embedding_), pass.positions));
  }
  Residual residual{dropout(ctx, x, Dropout{config_.embd_pdrop, kEmbeddingSite}), Var()};
  for (const DecoderLayer& layer : layers_) residual = layer(pass, residual);
  return final_norm_(pass, residual).normed;
}

Pass TinyTransformer::pass_for(const Context& ctx, Tape* tape, const Tensor& inputs,
                               const Exec& exec) const {
  check(inputs.rank() == 2 && inputs.dtype() == Dtype::i32,
        "model: inputs must be [B, T] of i32; got ", inputs.shape(), " of ", inputs.dtype());
  check(exec.dtype == dtype_, "model: parameters are held in ", dtype_, "; asked to compute in ",
        exec.dtype);
  const int64_t B = inputs.size(0), T = inputs.size(1);
  check_input(T <= config_.max_position_embeddings, "model: sequence length ", T,
              " must not exceed model.max_position_embeddings ", config_.max_position_embeddings);
  const RopeTable* rope = config_.positions == Positions::rope ? &rope_ : nullptr;
  const Tensor positions = positions_.slice(0, 0, T).reshape({1, T}).expand({B, T});
  return Pass{ctx, tape, exec, rope, contiguous(ctx, positions), causal_mask(ctx, B, T, T)};
}

}  // namespace xtrain
