#include "train/eval/multiple_choice.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/catch.h"
#include "support/model_examples.h"
#include "support/rejection.h"
#include "train/eval/bigram_model.h"
#include "train/eval/row_losses.h"

namespace xtrain {
namespace {

MultipleChoiceOptions options_for(int64_t batch_size, int64_t seq_len = 16) {
  MultipleChoiceOptions options;
  options.batch_size = batch_size;
  options.seq_len = seq_len;
  options.exec = f64_exec();
  return options;
}

MultipleChoiceScore score(TinyTransformer& model,
                          const std::vector<MultipleChoiceExample>& examples,
                          const MultipleChoiceOptions& options = options_for(8)) {
  return score_multiple_choice(cpu_context(1), model, {"set", "test", examples},
                               model.config().vocab_size, options);
}

// Logits by which 0 -> 1 is likely, 1 -> 2 likelier still, and all else equally unlikely.
Table chain() {
  Table table(4, std::vector<double>(4, 0.0));
  table[0][1] = 2.0;
  table[1][2] = 5.0;
  return table;
}

TEST_CASE("multiple choice: the sum and the mean of the losses may prefer different choices") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  // By hand: p(1|0) = e^2/(e^2+3) = 0.711, p(2|1) = e^5/(e^5+3) = 0.980, others after 0 0.096.
  // Choice 0: 0.711. Choice 1: 0.711 * 0.980 = 0.697, per token sqrt(0.697) = 0.835. Choice 2:
  // 0.096.
  MultipleChoiceExample example{{3, 0}, {{1}, {1, 2}, {3}}, 0, "e"};
  const auto right = [&](int64_t answer) {
    example.answer = answer;
    const MultipleChoiceScore result = score(*model, {example});
    return std::pair(result.correct, result.correct_norm);
  };
  CHECK(right(0) == std::pair<int64_t, int64_t>(1, 0));
  CHECK(right(1) == std::pair<int64_t, int64_t>(0, 1));
  CHECK(right(2) == std::pair<int64_t, int64_t>(0, 0));
}

TEST_CASE("multiple choice: the first token of a choice is predicted from the context's last") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  CHECK(score(*model, {{{0, 1}, {{2}, {1}}, 0, "e"}}).correct == 1);
  CHECK(score(*model, {{{1, 0}, {{2}, {1}}, 0, "e"}}).correct == 0);
}

TEST_CASE("multiple choice: of equal choices the first is taken") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  const MultipleChoiceScore first = score(*model, {{{2}, {{0}, {1}, {3}}, 0, "e"}});
  CHECK(first.correct == 1);
  CHECK(first.correct_norm == 1);
  CHECK(score(*model, {{{2}, {{0}, {1}, {3}}, 1, "e"}}).correct == 0);
}

TEST_CASE("multiple choice: accuracies and chance are means over the examples") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  const MultipleChoiceScore result = score(*model, {{{0}, {{1}, {2}}, 0, "e"},
                                                    {{0}, {{1}, {2}, {3}, {0}}, 0, "e"},
                                                    {{0}, {{1}, {2}, {3}, {0}}, 2, "e"},
                                                    {{1}, {{1}, {2}}, 0, "e"}});
  CHECK(result.examples == 4);
  CHECK(result.accuracy() == 0.5);
  CHECK(result.accuracy_norm() == 0.5);
  CHECK(result.chance() == (0.5 + 0.25 + 0.25 + 0.5) / 4);
  CHECK(result.cut == 0);
}

TEST_CASE("multiple choice: neither batch size nor padding changes what is chosen") {
  const Context ctx = cpu_context(1);
  TinyTransformer model(ctx, small_models(11, 16)[0].config, Dtype::f64);
  model.initialize(ctx, 3);
  std::vector<MultipleChoiceExample> examples;
  for (int32_t i = 0; i < 40; ++i) {
    MultipleChoiceExample example{{}, {}, i % 3, "e"};
    for (int32_t k = 0; k <= i % 7; ++k) example.context.push_back((i * 5 + k * 3) % 11);
    for (int32_t c = 0; c < 3; ++c) {
      example.choices.emplace_back();
      for (int32_t k = 0; k <= (i + 2 * c) % 5; ++k) {
        example.choices.back().push_back((i + c * 4 + k * 7) % 11);
      }
    }
    examples.push_back(example);
  }
  const MultipleChoiceScore alone = score(model, examples, options_for(1));
  CHECK(alone.correct > 5);
  CHECK(alone.correct < 30);
  CHECK(alone.correct != alone.correct_norm);
  for (const int64_t batch : {2, 5, 8, 200}) {
    const MultipleChoiceScore together = score(model, examples, options_for(batch));
    CHECK(together.correct == alone.correct);
    CHECK(together.correct_norm == alone.correct_norm);
    CHECK(together.examples == 40);
  }
}

namespace {

// The score of a choice by a pass over its whole context.
double whole_pass_nats(const Context& ctx, TinyTransformer& model,
                       const MultipleChoiceExample& example, size_t choice,
                       const MultipleChoiceOptions& options) {
  std::vector<int32_t> row = example.context;
  const std::vector<int32_t>& tokens = example.choices[choice];
  row.insert(row.end(), tokens.begin(), tokens.end());
  const auto most = static_cast<size_t>(options.seq_len) + 1;
  if (row.size() > most) row.erase(row.begin(), row.end() - static_cast<std::ptrdiff_t>(most));
  const auto T = static_cast<int64_t>(row.size()) - 1;
  const Batch batch{1, T, 0, {row.begin(), row.end() - 1}, {row.begin() + 1, row.end()}};
  const std::vector<double> losses =
      row_losses(ctx, model, batch, options.exec, model.config().vocab_size);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(tokens.size()), losses.end(),
                         0.0);
}

}  // namespace

TEST_CASE("multiple choice: a context that is read once gives the scores of whole passes") {
  const Context ctx = cpu_context(1);
  std::vector<MultipleChoiceExample> examples;
  for (int32_t i = 0; i < 60; ++i) {  // of 2 to 5 choices, with contexts of 1 to 11 tokens
    MultipleChoiceExample example{{}, {}, 0, "e"};
    for (int32_t k = 0; k <= i % 11; ++k) example.context.push_back((i * 5 + k * 3) % 11);
    for (int32_t c = 0; c < 2 + i % 4; ++c) {
      example.choices.emplace_back();
      for (int32_t k = 0; k <= (i + 3 * c) % 6; ++k) {
        example.choices.back().push_back((i + c * 4 + k * 7) % 11);
      }
    }
    examples.push_back(example);
  }
  for (const auto& [name, config] : small_models(11, 16)) {
    for (const AttentionKind attention : {AttentionKind::flash, AttentionKind::composed}) {
      for (const int64_t seq_len : {16, 9}) {  // 9 cuts contexts, differently for each choice
        INFO(name << ", attention " << static_cast<int>(attention) << ", seq_len " << seq_len);
        MultipleChoiceOptions options = options_for(7, seq_len);
        options.exec = f64_exec(attention);
        TinyTransformer model(ctx, config, Dtype::f64, ModelUse::inference);
        model.initialize(ctx, 3);
        // The answer is the choice that whole passes find likeliest, so every one must be right.
        for (MultipleChoiceExample& example : examples) {
          std::vector<double> nats;
          for (size_t c = 0; c < example.choices.size(); ++c) {
            nats.push_back(whole_pass_nats(ctx, model, example, c, options));
          }
          example.answer = std::min_element(nats.begin(), nats.end()) - nats.begin();
        }
        const MultipleChoiceScore result = score(model, examples, options);
        CHECK(result.correct == 60);
        CHECK(result.correct_norm < 60);
        CHECK((result.cut > 0) == (seq_len == 9));
      }
    }
  }
}

TEST_CASE("multiple choice: contexts that are too long are cut at the front and counted") {
  const Context ctx = cpu_context(1);
  TinyTransformer model(ctx, small_models(11, 16)[1].config, Dtype::f64);
  model.initialize(ctx, 3);
  std::vector<MultipleChoiceExample> whole, cut;
  for (int32_t i = 0; i < 30; ++i) {
    MultipleChoiceExample example{{}, {{i % 11, 3}, {(i * 7 + 1) % 11}}, i % 2, "e"};
    for (int32_t k = 0; k < 7; ++k) example.context.push_back((i * 5 + k * 3) % 11);
    whole.push_back(example);
    example.context.insert(example.context.begin(), {9, 8, 7});
    cut.push_back(example);
  }
  // 7 + 2 tokens are 8 inputs; the other choice is one shorter and loses one token less.
  for (auto& example : whole) example.choices[1].push_back(4);
  for (auto& example : cut) example.choices[1].push_back(4);
  const MultipleChoiceScore expected = score(model, whole, options_for(4, 8));
  const MultipleChoiceScore result = score(model, cut, options_for(4, 8));
  CHECK(expected.cut == 0);
  CHECK(result.cut == 30);
  CHECK(result.correct == expected.correct);
  CHECK(result.correct_norm == expected.correct_norm);
  CHECK(score(model, cut, options_for(4, 11)).cut == 0);
}

TEST_CASE("multiple choice: what does not fit the model is rejected") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  CHECK(rejection([&] {
          score(*model, {{{0}, {{1}, {1, 2, 3}}, 0, "e.bin: example 7"}}, options_for(8, 2));
        }) == "e.bin: example 7: choice 1 has 3 tokens; seq_len must be at least that; it is 2");
  CHECK(score(*model, {{{0}, {{1}, {1, 2, 3}}, 0, "e"}}, options_for(8, 3)).cut == 0);
  CHECK(rejection([&] { score(*model, {}); }) == "set: holds no examples");
  CHECK(rejection([&] {
          score(*model, {{{0}, {{1}, {2}}, 0, "e"}}, options_for(8, 17));
        }) == "seq_len must lie in 1..16, the model's max_position_embeddings; got 17");
}

TEST_CASE("multiple choice: progress counts examples up to all") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, chain());
  const MultipleChoiceExample example{{0}, {{1}, {2}, {3}}, 0, "e"};
  std::vector<int64_t> done;
  score_multiple_choice(ctx, *model, {"set", "test", {example, example, example}}, 4,
                        options_for(1), [&](int64_t now, int64_t) { done.push_back(now); });
  CHECK(done == std::vector<int64_t>{1, 2, 3});
  done.clear();
  score_multiple_choice(ctx, *model, {"set", "test", {example, example, example}}, 4,
                        options_for(2), [&](int64_t now, int64_t) { done.push_back(now); });
  CHECK(done == std::vector<int64_t>{2, 3});
}

}  // namespace
}  // namespace xtrain
