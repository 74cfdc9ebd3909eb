#include "train/eval/multiple_choice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "core/error.h"
#include "model/kv_cache.h"
#include "train/eval/row_losses.h"

namespace xtrain {
namespace {

// A context as the model sees it, at least one token, and the choices that follow it.
struct Question {
  size_t example;
  std::span<const int32_t> context;
  std::vector<size_t> choices;
};

// Choices of different length may leave room for more or less of the context, which then is read
// for each length anew.
std::vector<Question> questions_of(const MultipleChoiceSet& set, int64_t seq_len) {
  std::vector<Question> questions;
  for (size_t e = 0; e < set.examples.size(); ++e) {
    const MultipleChoiceExample& example = set.examples[e];
    std::map<int64_t, std::vector<size_t>> choices_at;  // by the first token of the context
    for (size_t c = 0; c < example.choices.size(); ++c) {
      const auto completed = static_cast<int64_t>(example.choices[c].size());
      check_input(completed <= seq_len, example.where, ": choice ", c, " has ", completed,
                  " tokens; seq_len must be at least that; it is ", seq_len);
      const int64_t all = static_cast<int64_t>(example.context.size()) + completed;
      choices_at[std::max<int64_t>(0, all - (seq_len + 1))].push_back(c);
    }
    for (auto& [first, choices] : choices_at) {
      const std::span<const int32_t> context = example.context;
      questions.push_back({e, context.subspan(static_cast<size_t>(first)), std::move(choices)});
    }
  }
  return questions;
}

// Some questions side by side. Their contexts are read once, all but the last token, which begins
// what is read for each choice: it predicts the choice's first.
class Round {
 public:
  Round(const Context& ctx, TinyTransformer& model, const MultipleChoiceSet& set,
        std::span<const Question> questions, const Exec& exec)
      : ctx_(ctx),
        model_(model),
        set_(set),
        questions_(questions),
        exec_(exec),
        cache_(ctx, model.config(), static_cast<int64_t>(questions.size()), capacity(), exec) {
    std::vector<std::vector<int32_t>> contexts;
    for (const Question& question : questions) {
      contexts.emplace_back(question.context.begin(), question.context.end() - 1);
      context_lengths_.push_back(static_cast<int64_t>(contexts.back().size()));
      choices_ = std::max(choices_, question.choices.size());
    }
    model.read_on(ctx, cache_, contexts, exec);
  }

  // The most choices that a question has.
  size_t choices() const { return choices_; }

  // -score of choice number i of every question; 0 for those that have none.
  std::vector<double> nats(size_t i, int64_t vocab_size) {
    cache_.rewind(ctx_, context_lengths_);
    std::vector<int64_t> lengths;
    for (const Question& question : questions_) lengths.push_back(length(question, i));
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::vector<int32_t> inputs, targets;
    for (const Question& question : questions_) {
      inputs.push_back(question.context.back());
      if (i < question.choices.size()) {
        const std::vector<int32_t>& tokens = choice(question, i);
        inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
        targets.insert(targets.end(), tokens.begin(), tokens.end());
      }
      const size_t end = static_cast<size_t>(longest) * (&question - questions_.data() + 1);
      inputs.resize(end, 0);
      targets.resize(end, kIgnoreIndex);
    }
    const TokenBatch batch = token_batch(ctx_, inputs, targets, cache_.rows());
    const std::vector<double> losses =
        finite_losses(ctx_, model_.losses_behind(ctx_, cache_, batch, lengths, exec_, vocab_size));
    std::vector<double> sums;
    for (auto row = losses.begin(); row != losses.end(); row += longest) {
      sums.push_back(std::accumulate(row, row + longest, 0.0));
    }
    return sums;
  }

 private:
  const std::vector<int32_t>& choice(const Question& question, size_t i) const {
    return set_.examples[question.example].choices[question.choices[i]];
  }
  int64_t length(const Question& question, size_t i) const {
    return i < question.choices.size() ? static_cast<int64_t>(choice(question, i).size()) : 0;
  }
  int64_t capacity() const {
    int64_t most = 0;
    for (const Question& question : questions_) {
      for (size_t i = 0; i < question.choices.size(); ++i) {
        const auto context = static_cast<int64_t>(question.context.size());
        most = std::max(most, context - 1 + length(question, i));
      }
    }
    return most;
  }

  const Context& ctx_;
  TinyTransformer& model_;
  const MultipleChoiceSet& set_;
  const std::span<const Question> questions_;
  const Exec& exec_;
  KvCache cache_;
  std::vector<int64_t> context_lengths_;  // in the cache
  size_t choices_ = 0;
};

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
  Context evaluating = ctx;
  evaluating.training = false;
  MultipleChoiceScore score;
  const auto all = static_cast<int64_t>(set.examples.size());
  std::vector<std::vector<double>> nats;  // -score of each choice of each example
  for (const MultipleChoiceExample& example : set.examples) {
    score.cut += is_cut(example, options.seq_len);
    nats.emplace_back(example.choices.size());
  }
  const std::vector<Question> questions = questions_of(set, options.seq_len);
  for (size_t first = 0; first < questions.size();) {
    const size_t end = std::min(first + static_cast<size_t>(options.batch_size), questions.size());
    const auto some = std::span(questions).subspan(first, end - first);
    Round round(evaluating, model, set, some, options.exec);
    for (size_t i = 0; i < round.choices(); ++i) {
      const std::vector<double> of_choices = round.nats(i, vocab_size);
      for (size_t q = 0; q < some.size(); ++q) {
        if (i < some[q].choices.size()) nats[some[q].example][some[q].choices[i]] = of_choices[q];
      }
    }
    first = end;
    const int64_t done =
        end == questions.size() ? all : static_cast<int64_t>(questions[end].example);
    while (score.examples < done) {
      const auto example = static_cast<size_t>(score.examples);
      count(set.examples[example], nats[example], score);
    }
    if (progress) progress(score.examples, all);
  }
  return score;
}

}  // namespace xtrain
