#include "train/eval/multiple_choice.h"

#include <algorithm>

#include "core/error.h"
#include "train/eval/row_losses.h"

namespace xtrain {
namespace {

// A completion behind its context.
struct Row {
  std::vector<int32_t> tokens;  // at most seq_len + 1
  int64_t completed = 0;        // tokens at the end that are the completion
};

Row row_of(const MultipleChoiceExample& example, size_t choice, int64_t seq_len) {
  const std::vector<int32_t>& completion = example.choices[choice];
  const auto completed = static_cast<int64_t>(completion.size());
  check_input(completed <= seq_len, example.where, ": choice ", choice, " has ", completed,
              " tokens; seq_len must be at least that; it is ", seq_len);
  Row row{example.context, completed};
  row.tokens.insert(row.tokens.end(), completion.begin(), completion.end());
  const int64_t beyond = static_cast<int64_t>(row.tokens.size()) - (seq_len + 1);
  if (beyond > 0) row.tokens.erase(row.tokens.begin(), row.tokens.begin() + beyond);
  return row;
}

// Rows are padded behind their end, where what they see is not changed by it.
Batch padded(std::span<const Row> rows) {
  size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.tokens.size() - 1);
  Batch batch{static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest), 0, {}, {}};
  for (const Row& row : rows) {
    const auto length = static_cast<int64_t>(row.tokens.size()) - 1;
    const int64_t padding = static_cast<int64_t>(longest) - length;
    batch.inputs.insert(batch.inputs.end(), row.tokens.begin(), row.tokens.end() - 1);
    batch.inputs.insert(batch.inputs.end(), padding, 0);
    batch.targets.insert(batch.targets.end(), length - row.completed, kIgnoreIndex);
    batch.targets.insert(batch.targets.end(), row.tokens.end() - row.completed, row.tokens.end());
    batch.targets.insert(batch.targets.end(), padding, kIgnoreIndex);
  }
  return batch;
}

// -score of each row.
std::vector<double> sums(const Batch& batch, const std::vector<double>& losses) {
  std::vector<double> result;
  for (int64_t row = 0; row < batch.batch_size; ++row) {
    double sum = 0.0;
    for (int64_t t = 0; t < batch.seq_len; ++t) {
      sum += losses[static_cast<size_t>(row * batch.seq_len + t)];
    }
    result.push_back(sum);
  }
  return result;
}

// Counts an example given -score of each choice.
void count(const MultipleChoiceExample& example, std::vector<double> nats,
           MultipleChoiceScore& score) {
  const auto is_least = [&] {
    return std::min_element(nats.begin(), nats.end()) - nats.begin() == example.answer;
  };
  score.correct += is_least();
  for (size_t i = 0; i < nats.size(); ++i) {
    nats[i] /= static_cast<double>(example.choices[i].size());
  }
  score.correct_norm += is_least();
  score.by_chance += 1.0 / static_cast<double>(nats.size());
  ++score.examples;
}

bool is_cut(const MultipleChoiceExample& example, int64_t seq_len) {
  return std::any_of(example.choices.begin(), example.choices.end(), [&](const auto& choice) {
    return static_cast<int64_t>(example.context.size() + choice.size()) > seq_len + 1;
  });
}

}  // namespace

MultipleChoiceScore score_multiple_choice(const Context& ctx, TinyTransformer& model,
                                          const MultipleChoiceSet& set, int64_t vocab_size,
                                          const MultipleChoiceOptions& options,
                                          const EvalProgress& progress) {
  check_eval_shape(model.config(), vocab_size, options.batch_size, options.seq_len);
  check_input(!set.examples.empty(), set.name, ": holds no examples");
  MultipleChoiceScore score;
  std::vector<Row> rows;
  std::vector<double> nats;  // of choices that are computed, from the first uncounted example on
  const auto all = static_cast<int64_t>(set.examples.size());
  const auto compute_rows = [&] {
    const Batch batch = padded(rows);
    const std::vector<double> of_rows =
        sums(batch, row_losses(ctx, model, batch, options.exec, vocab_size));
    nats.insert(nats.end(), of_rows.begin(), of_rows.end());
    rows.clear();
    while (score.examples < all) {
      const auto& example = set.examples[static_cast<size_t>(score.examples)];
      const auto choices = static_cast<std::ptrdiff_t>(example.choices.size());
      if (static_cast<std::ptrdiff_t>(nats.size()) < choices) break;
      count(example, {nats.begin(), nats.begin() + choices}, score);
      nats.erase(nats.begin(), nats.begin() + choices);
    }
    if (progress) progress(score.examples, all);
  };
  for (const MultipleChoiceExample& example : set.examples) {
    score.cut += is_cut(example, options.seq_len);
    for (size_t choice = 0; choice < example.choices.size(); ++choice) {
      rows.push_back(row_of(example, choice, options.seq_len));
      if (static_cast<int64_t>(rows.size()) == options.batch_size) compute_rows();
    }
  }
  if (!rows.empty()) compute_rows();
  return score;
}

}  // namespace xtrain
