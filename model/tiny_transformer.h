#pragma once
// A decoder-only transformer: embedding, pre-norm layers, final norm, head. GPT-2, Llama, Qwen2 and
// Qwen3 are configurations of it.
//
//   x = embed(ids) (+ embed_positions(positions))
//   layer: x += attention(norm(x)); x += mlp(norm(x))
//   logits = norm(x) head^T, where a tied head is the embedding

#include <deque>

#include "model/config.h"
#include "model/exec.h"
#include "model/layers.h"
#include "model/table_reader.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace xtrain {

// Rows of token ids, all of one length.
struct TokenBatch {
  Tensor inputs;   // [B, T] i32
  Tensor targets;  // [B, T] i32, kIgnoreIndex where a position does not count; unused for logits
};

// The batch as tensors on the context's device. `targets` may be empty.
TokenBatch token_batch(const Context& ctx, std::span<const int32_t> inputs,
                       std::span<const int32_t> targets, int64_t batch_size);

// What a model reserves memory for: parameters and their gradients, parameters alone, or neither,
// where StreamedWeights gives the parameters their values.
enum class ModelUse : uint8_t { training, inference, streamed };

class TinyTransformer {
 public:
  // Allocates parameters and gradients in the dtype of the computation; values are undefined until
  // initialize() or a checkpoint fills them. InputError when the config does not hold together.
  TinyTransformer(const Context& ctx, const ModelConfig& config, Dtype dtype,
                  ModelUse model_use = ModelUse::training);
  TinyTransformer(const TinyTransformer&) = delete;
  TinyTransformer& operator=(const TinyTransformer&) = delete;

  // Fresh weights, a function of the seed and each parameter's name.
  void initialize(const Context& ctx, uint64_t seed);

  // Sum and number of the losses of the counted targets. With a null tape only values. T must not
  // exceed max_position_embeddings. exec.dtype must be the model's.
  Loss loss(const Context& ctx, Tape* tape, const TokenBatch& batch, const Exec& exec);

  // The loss of each target by itself, [B, T] in the accumulator's dtype of exec.dtype; 0 where it
  // does not count. Ids from `vocab_size` on are padding, which takes no probability; 0: none are.
  Tensor losses(const Context& ctx, const TokenBatch& batch, const Exec& exec,
                int64_t vocab_size = 0);

  // [B, T, vocab_size].
  Var logits(const Context& ctx, Tape* tape, const TokenBatch& batch, const Exec& exec);

  // What may follow: [B, vocab_size] behind the last token of each row, values only. The three ways
  // give the same bits where the GEMM backend makes a row's bits independent of the others (naive
  // and tiled). exec.recompute means nothing here.
  //
  // Of rows of any lengths from 1 to max_position_embeddings, each by itself from position 0.
  Tensor next_logits(const Context& ctx, std::span<const std::vector<int32_t>> rows,
                     const Exec& exec);
  // The same, and the rows' keys and values are put into the cache. Error when that is not empty,
  // InputError when a row is longer than its capacity.
  Tensor prefill(const Context& ctx, KvCache& cache, std::span<const std::vector<int32_t>> rows,
                 const Exec& exec);
  // Reads the rows behind what the cache holds of them; a row may be empty.
  void read_on(const Context& ctx, KvCache& cache, std::span<const std::vector<int32_t>> rows,
               const Exec& exec);
  // The same for the first lengths[b] tokens of row b of the batch, and the loss of each target as
  // losses() gives it: that of whole rows, bit for bit where a row's bits are independent of
  // others.
  Tensor losses_behind(const Context& ctx, KvCache& cache, const TokenBatch& batch,
                       std::span<const int64_t> lengths, const Exec& exec, int64_t vocab_size = 0);
  // One more token [B] i32 for each row of the cache that has not ended; for a row that has, any
  // id. Beside `tokens` and the cache nothing is read that changes from token to token.
  Tensor decode(const Context& ctx, KvCache& cache, const Tensor& tokens, const Exec& exec);
  // The part of decode behind KvCache::plan_one, which can be recorded (model/decoder.h).
  Tensor decode_planned(const Context& ctx, KvCache& cache, const Tensor& tokens, const Exec& exec);

  // Embeddings and head are asked of `tables` from now on, which must outlive the model's passes;
  // only next_logits, prefill and decode can be had then.
  void read_tables_from(TableReader& tables) { tables_ = &tables; }

  // Whether a pass reads weights from the host.
  bool is_streamed() const { return tables_ != nullptr; }

  const ModelConfig& config() const { return config_; }
  ParameterSet& parameters() { return parameters_; }

 private:
  void check_inputs(const Tensor& inputs, const Exec& exec) const;
  Pass pass_for(const Context& ctx, Tape* tape, const Tensor& inputs, const Exec& exec) const;
  Pass cached_pass(const Context& ctx, const KvCache& cache, const Tensor& positions,
                   const Exec& exec) const;
  Tensor counted_positions(const Context& ctx, int64_t batch, int64_t time) const;
  Tensor positions_behind(const Context& ctx, const KvCache& cache, int64_t time) const;
  Tensor hidden_behind(const Context& ctx, KvCache& cache, const Tensor& inputs,
                       std::span<const int64_t> lengths, const Exec& exec);
  Tensor losses_of(const Context& ctx, const Tensor& hidden, const Tensor& targets,
                   int64_t vocab_size);
  Var rows_of(const Pass& pass, Parameter& table, const Tensor& ids);
  Tensor head_product(const Context& ctx, const Tensor& x);
  Var hidden(Pass pass, const Tensor& inputs, const KvCache* cache = nullptr);
  Tensor logits_behind(const Context& ctx, const Tensor& hidden, const Tensor& last);

  ModelConfig config_;
  Dtype dtype_;
  ParameterSet parameters_;
  Parameter* embedding_ = nullptr;
  Parameter* position_embedding_ = nullptr;  // learned positions
  std::deque<DecoderLayer> layers_;
  Norm final_norm_;
  Parameter* head_ = nullptr;      // the embedding when tied
  TableReader* tables_ = nullptr;  // null: the tables are parameters with values
  RopeTable rope_;
  Tensor positions_;  // [max_position_embeddings] i32: 0, 1, ...; so that a pass uploads nothing
};

}  // namespace xtrain
