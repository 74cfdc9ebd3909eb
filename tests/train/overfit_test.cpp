#include "core/copy.h"
#include "support/catch.h"
#include "support/model_examples.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"
#include "train/sample.h"

using namespace xtrain;

namespace {

constexpr int64_t kRows = 3, kLength = 12, kVocab = 11;

// Rows of random tokens that begin differently, so that the first token tells the row.
std::vector<std::vector<int32_t>> rows_to_learn() {
  std::vector<std::vector<int32_t>> rows(kRows, std::vector<int32_t>(kLength + 1));
  const RandomStream stream = random_stream(12, 0, 0);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t t = 0; t <= kLength; ++t) {
      rows[r][t] = t == 0 ? static_cast<int32_t>(r)
                          : static_cast<int32_t>(random_below(stream, r, t, kVocab));
    }
  }
  return rows;
}

TokenBatch batch_of(const Context& ctx, const std::vector<std::vector<int32_t>>& rows) {
  std::vector<int32_t> inputs, targets;
  for (const auto& row : rows) {
    inputs.insert(inputs.end(), row.begin(), row.end() - 1);
    targets.insert(targets.end(), row.begin() + 1, row.end());
  }
  return token_batch(ctx, inputs, targets, kRows);
}

// Trains until the mean loss is below the limit; returns the last loss.
double overfit(const Context& ctx, TinyTransformer& model, const TokenBatch& batch,
               const Exec& exec, double limit) {
  ParameterSet& parameters = model.parameters();
  AdamW optimizer(ctx, parameters, {0.9, 0.99, 1e-8, 0.0}, {0, parameters.arena_size()});
  double loss = 0.0;
  for (int step = 1; step <= 600; ++step) {
    parameters.clear_grads();
    Tape tape(ctx);
    const Loss result = model.loss(ctx, &tape, batch, exec);
    const double count = static_cast<double>(to_host<int64_t>(ctx, result.count)[0]);
    loss = to_host<double>(ctx, cast(ctx, result.sum.value, Dtype::f64))[0] / count;
    if (loss < limit) break;
    tape.backward(result.sum);
    const GradScale scale = grad_scale(sum_of_squares(ctx, parameters.grads()), count, 1.0);
    optimizer.step(ctx, step, 5e-3, scale.factor);
  }
  return loss;
}

}  // namespace

TEST_CASE("every model kind learns one batch by heart and writes it down again", "[train]") {
  const Context ctx = cpu_context(1);
  const std::vector<std::vector<int32_t>> rows = rows_to_learn();
  for (const auto& [name, config] : small_models(kVocab, 16)) {
    for (AttentionKind attention : {AttentionKind::composed, AttentionKind::flash}) {
      for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        INFO(name << ", attention " << static_cast<int>(attention) << ", " << dtype);
        Exec exec;
        exec.attention = attention;
        exec.dtype = dtype;
        TinyTransformer model(ctx, config, dtype);
        model.initialize(ctx, 3);
        CHECK(overfit(ctx, model, batch_of(ctx, rows), exec, 0.01) < 0.01);
        SampleOptions greedy;
        greedy.max_new_tokens = kLength;
        greedy.temperature = 0.0;
        greedy.context_length = kLength;
        for (const auto& row : rows) {
          CHECK(sample(ctx, model, exec, {row[0]}, 1, greedy)[0] == row);
        }
      }
    }
  }
}

TEST_CASE("samples depend on seed and options, and never on how many are drawn", "[train]") {
  const Context ctx = cpu_context(1);
  TinyTransformer model(ctx, small_models(kVocab, 16)[1].config, Dtype::f32);
  model.initialize(ctx, 3);
  SampleOptions options;
  options.max_new_tokens = 40;  // beyond the model's positions: the text is cut at the front
  options.context_length = 16;
  const auto three = sample(ctx, model, Exec{}, {1, 2}, 3, options);
  CHECK(three[0].size() == 42);
  CHECK(three[0] != three[1]);
  CHECK(sample(ctx, model, Exec{}, {1, 2}, 1, options)[0] == three[0]);
  options.seed = 9;
  CHECK(sample(ctx, model, Exec{}, {1, 2}, 1, options)[0] != three[0]);
  options.vocab_size = 2;  // ids 2 and above are padding
  const std::vector<int32_t> ids = sample(ctx, model, Exec{}, {1}, 1, options)[0];
  CHECK(std::all_of(ids.begin(), ids.end(), [](int32_t id) { return id < 2; }));
}
