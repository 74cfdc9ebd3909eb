#include "train/eval/row_losses.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {

void check_eval_shape(const ModelConfig& model, int64_t vocab_size, int64_t batch_size,
                      int64_t seq_len) {
  check_input(vocab_size <= model.vocab_size, "the vocabulary has ", vocab_size,
              " ids, more than the model's vocab_size ", model.vocab_size);
  const int64_t most = model.max_position_embeddings;
  check_input(batch_size >= 1, "batch_size must be at least 1; got ", batch_size);
  check_input(seq_len >= 1 && seq_len <= most, "seq_len must lie in 1..", most,
              ", the model's max_position_embeddings; got ", seq_len);
}

std::vector<double> row_losses(const Context& ctx, TinyTransformer& model, const Batch& batch,
                               const Exec& exec, int64_t vocab_size) {
  Context evaluating = ctx;
  evaluating.training = false;
  const TokenBatch tokens = token_batch(evaluating, batch.inputs, batch.targets, batch.batch_size);
  return finite_losses(evaluating, model.losses(evaluating, tokens, exec, vocab_size));
}

std::vector<double> finite_losses(const Context& ctx, const Tensor& losses) {
  std::vector<double> values = to_host<double>(ctx, cast(ctx, losses, Dtype::f64));
  check(std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); }),
        "a loss is not finite; the model's weights hold values that are not, or too large");
  return values;
}

}  // namespace xtrain
