#include "train/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

constexpr uint64_t kSampleSite = 0x73616d706c65;  // apart from the model's own sites

// The logits behind the last token of each row, [B, V] as f64.
std::vector<double> last_logits(const Context& ctx, TinyTransformer& model, const Exec& exec,
                                const std::vector<std::vector<int32_t>>& rows,
                                int64_t context_length) {
  const int64_t length = std::min<int64_t>(rows[0].size(), context_length);
  std::vector<int32_t> inputs;
  for (const auto& row : rows) inputs.insert(inputs.end(), row.end() - length, row.end());
  const TokenBatch batch = token_batch(ctx, inputs, {}, static_cast<int64_t>(rows.size()));
  const Tensor logits = model.next_logits(ctx, nullptr, batch, exec).value;
  return to_host<double>(ctx, cast(ctx, logits, Dtype::f64));
}

// One of the ids by its logit; `uniform` in [0, 1) decides.
int32_t draw(std::span<const double> logits, const SampleOptions& options, double uniform) {
  check(std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); }),
        "sample: the logits are not finite, so that no token can be drawn; training has diverged");
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const int64_t all = static_cast<int64_t>(ids.size());
  const int64_t kept = options.temperature == 0.0 ? 1 : std::min(all, options.top_k.value_or(all));
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), likelier);
  std::vector<double> weights(kept, 1.0);
  for (int64_t i = 1; i < kept; ++i) {
    weights[i] = std::exp((logits[ids[i]] - logits[ids[0]]) / options.temperature);
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (int64_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0.0) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace

std::vector<std::vector<int32_t>> sample(const Context& training_ctx, TinyTransformer& model,
                                         const Exec& exec, const std::vector<int32_t>& prompt,
                                         int64_t count, const SampleOptions& options) {
  check_input(!prompt.empty(), "sample: the prompt must hold at least one token");
  check(options.context_length > 0, "sample: context_length must be at least 1; got ",
        options.context_length);
  Context ctx = training_ctx;
  ctx.training = false;
  const RandomStream stream = random_stream(options.seed, 0, kSampleSite);
  std::vector<std::vector<int32_t>> rows(count, prompt);
  const int64_t V = model.config().vocab_size;
  const int64_t drawable = options.vocab_size > 0 ? options.vocab_size : V;
  for (int64_t n = 0; n < options.max_new_tokens && count > 0; ++n) {
    const std::vector<double> logits = last_logits(ctx, model, exec, rows, options.context_length);
    for (int64_t row = 0; row < count; ++row) {
      const std::span<const double> of_row(logits.data() + row * V, drawable);
      rows[row].push_back(draw(of_row, options, stream.uniform(row, n)));
    }
  }
  return rows;
}

}  // namespace xtrain
