#include "model/tiny_transformer.h"

#include <algorithm>
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

TinyTransformer::TinyTransformer(const Context& ctx, const ModelConfig& config, Dtype dtype,
                                 ModelUse model_use)
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
    rope_.is_checked = true;  // no pass is longer
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
  if (model_use != ModelUse::streamed) {
    head_->zero_rows = head_zero_rows(ctx, V);
    parameters_.allocate(ctx, dtype, model_use == ModelUse::training);
  }
}

void TinyTransformer::initialize(const Context& ctx, uint64_t seed) {
  for (Parameter& p : parameters_.list()) copy(ctx, initial_value(ctx, p, seed), p.value);
}

Loss TinyTransformer::loss(const Context& ctx, Tape* tape, const TokenBatch& batch,
                           const Exec& exec) {
  check(batch.targets.defined() && batch.targets.shape() == batch.inputs.shape(),
        "loss: targets must have the shape of the inputs ", batch.inputs.shape());
  const Pass pass = pass_for(ctx, tape, batch.inputs, exec);
  const int64_t rows = batch.inputs.numel();
  const Var x = reshape(ctx, hidden(pass, batch.inputs), {rows, config_.hidden_size});
  const Var head = use(tape, *head_);
  const Tensor targets = batch.targets.reshape({rows});
  const int64_t V = config_.vocab_size;
  return exec.fused
             ? linear_cross_entropy(ctx, x, head, targets, V, kIgnoreIndex, 0, head_->zero_rows)
             : linear_cross_entropy_composed(ctx, x, head, targets, V, kIgnoreIndex);
}

Tensor TinyTransformer::losses(const Context& ctx, const TokenBatch& batch, const Exec& exec,
                               int64_t vocab_size) {
  const Pass pass = pass_for(ctx, nullptr, batch.inputs, exec);
  return losses_of(ctx, hidden(pass, batch.inputs).value, batch.targets, vocab_size);
}

Tensor TinyTransformer::losses_of(const Context& ctx, const Tensor& hidden, const Tensor& targets,
                                  int64_t vocab_size) {
  const Shape shape{hidden.size(0), hidden.size(1)};
  check(targets.defined() && targets.shape() == shape,
        "losses: targets must have the shape of the inputs ", shape);
  const int64_t rows = numel_of(shape);
  return linear_cross_entropy_rows(ctx, hidden.reshape({rows, config_.hidden_size}),
                                   use(nullptr, *head_).value, targets.reshape({rows}), vocab_size,
                                   kIgnoreIndex, 0, head_->zero_rows)
      .reshape(shape);
}

Var TinyTransformer::logits(const Context& ctx, Tape* tape, const TokenBatch& batch,
                            const Exec& exec) {
  const Pass pass = pass_for(ctx, tape, batch.inputs, exec);
  return linear(ctx, hidden(pass, batch.inputs), use(tape, *head_), Var());
}

// --- what may follow -----------------------------------------------------------------------------

namespace {

// Rows of any length as one batch: they begin together, and what is behind their ends is never
// looked at, by mask or by choice.
struct PaddedRows {
  Tensor inputs;  // [B, T] i32
  Tensor last;    // [B] i32, where each row's last token stands among the B T
  std::vector<int64_t> lengths;
};

PaddedRows padded(const Context& ctx, std::span<const std::vector<int32_t>> rows,
                  bool may_be_empty = false) {
  check(!rows.empty(), "model: at least one row must be given");
  PaddedRows all;
  int64_t T = 0;
  for (const auto& row : rows) {
    check_input(may_be_empty || !row.empty(), "model: every row must hold at least one token");
    all.lengths.push_back(static_cast<int64_t>(row.size()));
    T = std::max(T, all.lengths.back());
  }
  std::vector<int32_t> ids(rows.size() * T, 0), last;
  for (size_t b = 0; b < rows.size(); ++b) {
    std::copy(rows[b].begin(), rows[b].end(), ids.begin() + b * T);
    last.push_back(static_cast<int32_t>(b * T + std::max<size_t>(rows[b].size(), 1) - 1));
  }
  const int64_t B = static_cast<int64_t>(rows.size());
  all.inputs = from_host(ctx, ids, {B, T});
  all.last = from_host(ctx, last, {B});
  return all;
}

}  // namespace

Tensor TinyTransformer::next_logits(const Context& ctx, std::span<const std::vector<int32_t>> rows,
                                    const Exec& exec) {
  const PaddedRows all = padded(ctx, rows);
  const Pass pass = pass_for(ctx, nullptr, all.inputs, exec);
  return logits_behind(ctx, hidden(pass, all.inputs).value, all.last);
}

Tensor TinyTransformer::prefill(const Context& ctx, KvCache& cache,
                                std::span<const std::vector<int32_t>> rows, const Exec& exec) {
  const PaddedRows all = padded(ctx, rows);
  for (int64_t row = 0; row < cache.rows(); ++row) {
    check(cache.length(row) == 0, "model: prefill needs an empty cache; row ", row, " holds ",
          cache.length(row), " tokens");
  }
  return logits_behind(ctx, hidden_behind(ctx, cache, all.inputs, all.lengths, exec), all.last);
}

void TinyTransformer::read_on(const Context& ctx, KvCache& cache,
                              std::span<const std::vector<int32_t>> rows, const Exec& exec) {
  if (std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.empty(); })) return;
  const PaddedRows all = padded(ctx, rows, true);
  hidden_behind(ctx, cache, all.inputs, all.lengths, exec);
}

Tensor TinyTransformer::losses_behind(const Context& ctx, KvCache& cache, const TokenBatch& batch,
                                      std::span<const int64_t> lengths, const Exec& exec,
                                      int64_t vocab_size) {
  const Tensor x = hidden_behind(ctx, cache, batch.inputs, lengths, exec);
  return losses_of(ctx, x, batch.targets, vocab_size);
}

// [B, T, C] of the inputs, of which the first lengths[b] of row b are put into the cache.
Tensor TinyTransformer::hidden_behind(const Context& ctx, KvCache& cache, const Tensor& inputs,
                                      std::span<const int64_t> lengths, const Exec& exec) {
  check_inputs(inputs, exec);
  const Tensor positions = positions_behind(ctx, cache, inputs.size(1));
  cache.plan(ctx, lengths);
  cache.begin(ctx);
  const Tensor x = hidden(cached_pass(ctx, cache, positions, exec), inputs, &cache).value;
  cache.finish(ctx);
  return x;
}

Tensor TinyTransformer::decode(const Context& ctx, KvCache& cache, const Tensor& tokens,
                               const Exec& exec) {
  cache.plan_one(ctx);
  return decode_planned(ctx, cache, tokens, exec);
}

Tensor TinyTransformer::decode_planned(const Context& ctx, KvCache& cache, const Tensor& tokens,
                                       const Exec& exec) {
  const int64_t B = cache.rows();
  const Tensor inputs = tokens.reshape({B, 1});
  check_inputs(inputs, exec);
  cache.begin(ctx);
  const Pass pass = cached_pass(ctx, cache, cache.lengths().reshape({B, 1}), exec);
  const Tensor x = hidden(pass, inputs, &cache).value.reshape({B, config_.hidden_size});
  const Tensor logits = head_product(ctx, x);
  cache.finish(ctx);
  return logits;
}

// hidden [B, T, C] at the places `last` of its B T rows.
Tensor TinyTransformer::logits_behind(const Context& ctx, const Tensor& hidden,
                                      const Tensor& last) {
  const Tensor rows = hidden.reshape({hidden.size(0) * hidden.size(1), hidden.size(2)});
  return head_product(ctx, embedding(ctx, rows, last).value);
}

Tensor TinyTransformer::head_product(const Context& ctx, const Tensor& x) {
  return tables_ ? tables_->product(ctx, x, *head_)
                 : linear(ctx, x, use(nullptr, *head_), Var()).value;
}

Var TinyTransformer::rows_of(const Pass& pass, Parameter& table, const Tensor& ids) {
  return tables_ ? Var(tables_->rows(pass.ctx, table, ids))
                 : embedding(pass.ctx, use(pass.tape, table), ids);
}

// --- passes --------------------------------------------------------------------------------------

// [B, T, C] after the final norm.
Var TinyTransformer::hidden(Pass pass, const Tensor& inputs, const KvCache* cache) {
  const Context& ctx = pass.ctx;
  Var x = rows_of(pass, *embedding_, inputs);
  if (position_embedding_) x = add(ctx, x, rows_of(pass, *position_embedding_, pass.positions));
  Residual residual{dropout(ctx, x, Dropout{config_.embd_pdrop, kEmbeddingSite}), Var()};
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (cache) pass.cache = &cache->layer(static_cast<int64_t>(i));
    residual = layers_[i](pass, residual);
  }
  return final_norm_(pass, residual).normed;
}

void TinyTransformer::check_inputs(const Tensor& inputs, const Exec& exec) const {
  check(inputs.rank() == 2 && inputs.dtype() == Dtype::i32,
        "model: inputs must be [B, T] of i32; got ", inputs.shape(), " of ", inputs.dtype());
  check(exec.dtype == dtype_, "model: parameters are held in ", dtype_, "; asked to compute in ",
        exec.dtype);
  check_input(inputs.size(1) <= config_.max_position_embeddings, "model: sequence length ",
              inputs.size(1), " must not exceed model.max_position_embeddings ",
              config_.max_position_embeddings);
}

// 0, 1, ... in each row.
Tensor TinyTransformer::counted_positions(const Context& ctx, int64_t batch, int64_t time) const {
  return contiguous(ctx, positions_.slice(0, 0, time).reshape({1, time}).expand({batch, time}));
}

// Those of the next `time` tokens of each row. Padding may go beyond the model's last position.
Tensor TinyTransformer::positions_behind(const Context& ctx, const KvCache& cache,
                                         int64_t time) const {
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < cache.rows(); ++row) {
    for (int64_t t = 0; t < time; ++t) {
      const int64_t position = std::min(cache.length(row) + t, config_.max_position_embeddings - 1);
      positions.push_back(static_cast<int32_t>(position));
    }
  }
  return from_host(ctx, positions, {cache.rows(), time});
}

Pass TinyTransformer::pass_for(const Context& ctx, Tape* tape, const Tensor& inputs,
                               const Exec& exec) const {
  check_inputs(inputs, exec);
  const int64_t B = inputs.size(0), T = inputs.size(1);
  const RopeTable* rope = config_.positions == Positions::rope ? &rope_ : nullptr;
  AttentionMask mask = causal_mask(ctx, B, T, T);
  mask.is_checked = true;
  return Pass{ctx, tape, exec, rope, counted_positions(ctx, B, T), mask};
}

Pass TinyTransformer::cached_pass(const Context& ctx, const KvCache& cache, const Tensor& positions,
                                  const Exec& exec) const {
  check(!ctx.training, "model: a cache serves inference; the context asks for training");
  Exec plain = exec;
  plain.recompute = RecomputeLevel::none;  // a pass must write into the cache once
  const RopeTable* rope = config_.positions == Positions::rope ? &rope_ : nullptr;
  return Pass{ctx, nullptr, plain, rope, positions, cache.mask()};
}

}  // namespace xtrain
