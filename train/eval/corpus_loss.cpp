#include "train/eval/corpus_loss.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "train/data/bpe_tokenizer.h"
#include "train/eval/row_losses.h"

namespace xtrain {
namespace {

// Where windows lie in a stream of which `targets` tokens follow the first.
struct Windows {
  int64_t targets, seq_len, stride;

  int64_t count() const {
    return targets <= seq_len ? 1 : 1 + (targets - seq_len + stride - 1) / stride;
  }
  int64_t begin(int64_t window) const { return window * stride; }  // its first input
  int64_t end(int64_t window) const { return std::min(begin(window) + seq_len, targets); }
  int64_t length(int64_t window) const { return end(window) - begin(window); }
  // Targets at its front that earlier windows have counted.
  int64_t context(int64_t window) const { return window == 0 ? 0 : seq_len - stride; }
};

Windows checked_windows(const TokenSource& source, const CorpusLossOptions& options) {
  check_input(options.stride >= 0 && options.stride <= options.seq_len, "stride must lie in 1..",
              options.seq_len, ", the tokens of a window; got ", options.stride);
  check_input(options.max_tokens >= 0, "max_tokens must not be negative; got ", options.max_tokens);
  check_input(source.size() >= 2, source.name(), ": holds ", source.size(),
              " tokens; a loss needs 2, one to predict from another");
  const int64_t all = source.size() - 1;
  const int64_t targets = options.max_tokens > 0 ? std::min(all, options.max_tokens) : all;
  return {targets, options.seq_len, options.stride > 0 ? options.stride : options.seq_len};
}

// Windows first .. first + count - 1, which are equally long.
Batch read_windows(const TokenSource& source, const Windows& windows, int64_t first,
                   int64_t count) {
  const int64_t T = windows.length(first);
  Batch batch{count, T, first, {}, {}};
  std::vector<int32_t> tokens(static_cast<size_t>(T) + 1);
  for (int64_t window = first; window < first + count; ++window) {
    const int64_t begin = windows.begin(window);
    source.read(begin, tokens);
    batch.inputs.insert(batch.inputs.end(), tokens.begin(), tokens.end() - 1);
    const std::span<int32_t> targets = std::span(tokens).subspan(1);
    source.mask_targets(begin + 1, targets);
    std::fill_n(targets.begin(), windows.context(window), kIgnoreIndex);
    batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
  }
  return batch;
}

// Bytes of the text of ids; none of special tokens.
int64_t text_bytes(const Vocabulary& vocabulary, std::span<const int32_t> ids,
                   const TokenSource& source) {
  try {
    const auto& tokenizer = vocabulary.tokenizer();
    const std::string text = tokenizer ? tokenizer->decode(ids, true) : vocabulary.decode(ids);
    return static_cast<int64_t>(text.size());
  } catch (const Error& error) {
    reject_input(source.name(), ": holds an id without text: ", error.what());
  }
}

}  // namespace

double CorpusLoss::perplexity() const {
  return std::exp(loss());
}

std::optional<double> CorpusLoss::bits_per_byte() const {
  if (bytes.value_or(0) == 0) return std::nullopt;
  return nats / (std::numbers::ln2 * static_cast<double>(*bytes));
}

CorpusLoss corpus_loss(const Context& ctx, TinyTransformer& model, const TokenSource& source,
                       const Vocabulary& vocabulary, const CorpusLossOptions& options,
                       const EvalProgress& progress) {
  check_eval_shape(model.config(), vocabulary.size(), options.batch_size, options.seq_len);
  const Windows windows = checked_windows(source, options);
  const bool has_text = vocabulary.kind() != Vocabulary::Kind::ids;
  CorpusLoss result;
  if (has_text) result.bytes = 0;
  for (int64_t first = 0; first < windows.count();) {
    int64_t count = 1;
    while (count < options.batch_size && first + count < windows.count() &&
           windows.length(first + count) == windows.length(first)) {
      ++count;
    }
    const Batch batch = read_windows(source, windows, first, count);
    const std::vector<double> losses =
        row_losses(ctx, model, batch, options.exec, vocabulary.size());
    std::vector<int32_t> counted;
    for (size_t i = 0; i < losses.size(); ++i) {
      if (batch.targets[i] == kIgnoreIndex) continue;
      result.nats += losses[i];
      counted.push_back(batch.targets[i]);
    }
    result.tokens += static_cast<int64_t>(counted.size());
    if (has_text) *result.bytes += text_bytes(vocabulary, counted, source);
    first += count;
    if (progress) progress(windows.end(first - 1), windows.targets);
  }
  check_input(result.tokens > 0, source.name(), ": no token counts; all targets are masked");
  return result;
}

}  // namespace xtrain
