#pragma once
// The losses of single tokens, as evaluation adds them up.

#include <cstdint>
#include <vector>

#include "model/tiny_transformer.h"
#include "train/data/windows.h"

namespace xtrain {

// InputError where the model does not have all ids of a vocabulary of this size, or batches of this
// shape do not fit it.
void check_eval_shape(const ModelConfig& model, int64_t vocab_size, int64_t batch_size,
                      int64_t seq_len);

// Losses of a model on the host, in f64. Error where one is not finite.
std::vector<double> finite_losses(const Context& ctx, const Tensor& losses);

// The loss of each target in nats, 0 for kIgnoreIndex; dropout is off. Ids of the model from
// `vocab_size` on are padding. Error where a loss is not finite.
std::vector<double> row_losses(const Context& ctx, TinyTransformer& model, const Batch& batch,
                               const Exec& exec, int64_t vocab_size);

}  // namespace xtrain
