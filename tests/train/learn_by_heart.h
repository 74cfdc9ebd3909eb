#pragma once
// Whether a model can learn one batch by heart, on any device.

#include <vector>

#include "core/copy.h"
#include "support/catch.h"
#include "support/model_examples.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"
#include "train/generate/generator.h"

namespace xtrain {

// Rows of random tokens that begin differently, so that the first token tells the row.
struct RowsToLearn {
  static constexpr int64_t kRows = 3, kLength = 12, kVocab = 11;
  std::vector<std::vector<int32_t>> rows;

  RowsToLearn() : rows(kRows, std::vector<int32_t>(kLength + 1)) {
    const RandomStream stream = random_stream(12, 0, 0);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t t = 0; t <= kLength; ++t) {
        rows[r][t] = t == 0 ? static_cast<int32_t>(r)
                            : static_cast<int32_t>(random_below(stream, r, t, kVocab));
      }
    }
  }

  TokenBatch batch(const Context& ctx) const {
    std::vector<int32_t> inputs, targets;
    for (const auto& row : rows) {
      inputs.insert(inputs.end(), row.begin(), row.end() - 1);
      targets.insert(targets.end(), row.begin() + 1, row.end());
    }
    return token_batch(ctx, inputs, targets, kRows);
  }
};

// Trains until the mean loss is below the limit; returns the last loss.
inline double overfit(const Context& ctx, TinyTransformer& model, const TokenBatch& batch,
                      const Exec& exec, double limit) {
  ParameterSet& parameters = model.parameters();
  AdamW optimizer(ctx, parameters, {0.9, 0.99, 1e-8, 0.0},
                  {ArenaRange{0, parameters.arena_size()}});
  double loss = 0.0;
  for (int step = 1; step <= 600; ++step) {
    parameters.clear_grads();
    Tape tape(ctx);
    const Loss result = model.loss(ctx, &tape, batch, exec);
    const double count = static_cast<double>(to_host<int64_t>(ctx, result.count)[0]);
    loss = to_host<double>(ctx, cast(ctx, result.sum.value, Dtype::f64))[0] / count;
    if (loss < limit) break;
    tape.backward(result.sum);
    const Tensor squares = sum_of_squares(ctx, parameters.grads());
    const auto scalars = optimizer.step_scalars(step, 5e-3);
    optimizer.step(ctx, from_host(ctx, std::span<const double>(scalars), {3}),
                   grad_scale(ctx, squares, result.count, 1.0));
  }
  return loss;
}

// Checks that the model learns the rows and writes them down again.
inline void check_learns_by_heart(const Context& ctx, const ModelConfig& config, const Exec& exec) {
  const RowsToLearn learnt;
  TinyTransformer model(ctx, config, exec.dtype);
  model.initialize(ctx, 3);
  CHECK(overfit(ctx, model, learnt.batch(ctx), exec, 0.01) < 0.01);
  GenerateOptions greedy;
  greedy.max_new_tokens = RowsToLearn::kLength;
  greedy.sampling.temperature = 0.0;
  std::vector<TextStart> starts;
  for (const auto& row : learnt.rows) starts.push_back({{row[0]}, 0});
  const Generation written = generate(ctx, model, exec, starts, greedy);
  for (size_t r = 0; r < learnt.rows.size(); ++r) {
    const std::vector<int32_t>& row = learnt.rows[r];
    CHECK(written.texts[r].ids == std::vector<int32_t>(row.begin() + 1, row.end()));
  }
}

// The same for every kind of model, attention and dtype.
inline void check_every_kind_learns_by_heart(const Context& ctx) {
  for (const auto& [name, config] : small_models(RowsToLearn::kVocab, 16)) {
    for (AttentionKind attention : {AttentionKind::composed, AttentionKind::flash}) {
      for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        INFO(name << ", attention " << static_cast<int>(attention) << ", " << dtype);
        Exec exec;
        exec.attention = attention;
        exec.dtype = dtype;
        check_learns_by_heart(ctx, config, exec);
      }
    }
  }
}

}  // namespace xtrain
