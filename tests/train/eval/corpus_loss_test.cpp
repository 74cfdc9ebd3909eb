#include "train/eval/corpus_loss.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/catch.h"
#include "support/model_examples.h"
#include "support/rejection.h"
#include "support/tolerance.h"
#include "train/data/bpe_tokenizer.h"
#include "train/eval/bigram_model.h"

namespace xtrain {
namespace {

std::vector<int32_t> mixed_ids(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    ids.push_back(static_cast<int32_t>((state >> 16) % static_cast<uint32_t>(vocab_size)));
  }
  return ids;
}

CorpusLossOptions options_for(int64_t batch_size, int64_t seq_len, int64_t stride = 0) {
  CorpusLossOptions options;
  options.batch_size = batch_size;
  options.seq_len = seq_len;
  options.stride = stride;
  options.exec = f64_exec();
  return options;
}

bool close(double a, double b, int64_t terms) {
  return std::abs(a - b) <= tolerance(Dtype::f64, terms) * std::abs(b);
}

TEST_CASE("corpus loss: a uniform model has the logarithm of the vocabulary's size") {
  const Context ctx = cpu_context(1);
  for (const int64_t V : {2, 65, 257}) {
    const auto model = bigram_model(
        ctx, Table(static_cast<size_t>(V), std::vector<double>(static_cast<size_t>(V), 1.5)));
    const ListSource source(mixed_ids(100, V));
    const CorpusLoss loss =
        corpus_loss(ctx, *model, source, Vocabulary::ids(V), options_for(4, 16));
    CHECK(loss.tokens == 99);
    CHECK(close(loss.loss(), std::log(static_cast<double>(V)), V));
    CHECK(close(loss.perplexity(), static_cast<double>(V), V));
    CHECK_FALSE(loss.bits_per_byte().has_value());
  }
}

TEST_CASE("corpus loss: padding beyond the vocabulary takes no probability") {
  const Context ctx = cpu_context(1);
  const Table table = mixed_table(11);
  const auto model = bigram_model(ctx, table);
  const std::vector<int32_t> ids = mixed_ids(60, 8);
  const CorpusLoss loss =
      corpus_loss(ctx, *model, ListSource(ids), Vocabulary::ids(8), options_for(3, 8));
  double expected = 0.0;
  for (size_t i = 1; i < ids.size(); ++i) expected += bigram_loss(table, ids[i - 1], ids[i], 8);
  CHECK(close(loss.nats, expected, 60 * 8));
  std::vector<int32_t> beyond = ids;
  beyond[30] = 8;
  CHECK_THROWS_AS(
      corpus_loss(ctx, *model, ListSource(beyond), Vocabulary::ids(8), options_for(3, 8)), Error);
}

TEST_CASE("corpus loss: every token counts once for any window, stride and batch") {
  const Context ctx = cpu_context(1);
  const Table table = mixed_table(7);
  const auto model = bigram_model(ctx, table);
  for (const int64_t tokens : {2, 3, 8, 9, 10, 16, 17, 41}) {
    const std::vector<int32_t> ids = mixed_ids(tokens, 7);
    double expected = 0.0;
    for (size_t i = 1; i < ids.size(); ++i) expected += bigram_loss(table, ids[i - 1], ids[i], 7);
    for (const int64_t seq_len : {1, 2, 5, 8, 16}) {
      for (int64_t stride = 0; stride <= seq_len; ++stride) {
        for (const int64_t batch : {1, 3, 100}) {
          INFO(tokens << " tokens, window " << seq_len << ", stride " << stride << ", batch "
                      << batch);
          const CorpusLoss loss = corpus_loss(ctx, *model, ListSource(ids), Vocabulary::ids(7),
                                              options_for(batch, seq_len, stride));
          CHECK(loss.tokens == tokens - 1);
          CHECK(close(loss.nats, expected, tokens * 7));
        }
      }
    }
  }
}

// The loss of each target, computed by itself from the tokens that its window shows.
double loss_by_definition(const Context& ctx, TinyTransformer& model,
                          const std::vector<int32_t>& ids, int64_t T, int64_t S) {
  double sum = 0.0;
  for (int64_t target = 1; target < static_cast<int64_t>(ids.size()); ++target) {
    const int64_t window = target <= T ? 0 : (target - T + S - 1) / S;
    const std::vector<int32_t> inputs(ids.begin() + window * S, ids.begin() + target);
    std::vector<int32_t> targets(inputs.size(), kIgnoreIndex);
    targets.back() = ids[static_cast<size_t>(target)];
    const Loss loss = model.loss(ctx, nullptr, token_batch(ctx, inputs, targets, 1), f64_exec());
    sum += to_host<double>(ctx, loss.sum.value)[0];
  }
  return sum;
}

TEST_CASE("corpus loss: overlapping windows give the context that the stride leaves") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models(11, 16)) {
    TinyTransformer model(ctx, config, Dtype::f64);
    model.initialize(ctx, 1);
    const std::vector<int32_t> ids = mixed_ids(30, 11);
    std::vector<double> sums;
    for (const int64_t stride : {1, 3, 8}) {
      INFO(name << ", stride " << stride);
      const double expected = loss_by_definition(ctx, model, ids, 8, stride);
      const CorpusLoss loss =
          corpus_loss(ctx, model, ListSource(ids), Vocabulary::ids(11), options_for(2, 8, stride));
      CHECK(loss.tokens == 29);
      CHECK(std::abs(loss.nats - expected) <= twin_tolerance(Dtype::f64) * expected);
      sums.push_back(loss.nats);
    }
    CHECK(sums[0] != sums[1]);
    CHECK(sums[1] != sums[2]);
  }
}

TEST_CASE("corpus loss: the batch size changes no bit") {
  const Context ctx = cpu_context(2);
  TinyTransformer model(ctx, small_models(11, 16)[3].config, Dtype::f32);
  model.initialize(ctx, 1);
  const ListSource source(mixed_ids(200, 11));
  for (const AttentionKind attention : {AttentionKind::flash, AttentionKind::composed}) {
    std::vector<double> nats;
    for (const int64_t batch : {1, 2, 7, 64}) {
      CorpusLossOptions options = options_for(batch, 16, 5);
      options.exec = Exec();
      options.exec.attention = attention;
      nats.push_back(corpus_loss(ctx, model, source, Vocabulary::ids(11), options).nats);
    }
    CHECK(nats == std::vector<double>(4, nats[0]));
  }
}

TEST_CASE("corpus loss: masked tokens are context and do not count") {
  const Context ctx = cpu_context(1);
  const Table table = mixed_table(7);
  const auto model = bigram_model(ctx, table);
  const std::vector<int32_t> ids = mixed_ids(40, 7);
  std::vector<bool> masked(40);
  double expected = 0.0;
  int64_t counted = 0;
  for (size_t i = 1; i < 40; ++i) {
    masked[i] = i % 4 < 2;
    if (masked[i]) continue;
    expected += bigram_loss(table, ids[i - 1], ids[i], 7);
    ++counted;
  }
  for (const int64_t stride : {3, 8}) {
    const CorpusLoss loss = corpus_loss(ctx, *model, ListSource(ids, masked), Vocabulary::ids(7),
                                        options_for(2, 8, stride));
    CHECK(loss.tokens == counted);
    CHECK(close(loss.nats, expected, 40 * 7));
  }
  const ListSource nothing(ids, std::vector<bool>(40, true));
  CHECK(rejection([&] {
          corpus_loss(ctx, *model, nothing, Vocabulary::ids(7), options_for(2, 8));
        }) == "list: no token counts; all targets are masked");
}

TEST_CASE("corpus loss: bits per byte are over the text of the tokens that count") {
  const Context ctx = cpu_context(1);
  const Table flat(256, std::vector<double>(256, 0.0));
  const auto model = bigram_model(ctx, flat);
  const std::vector<int32_t> ids = mixed_ids(50, 256);
  const CorpusLoss bytes =
      corpus_loss(ctx, *model, ListSource(ids), Vocabulary::bytes(), options_for(4, 16));
  CHECK(bytes.bytes == 49);
  CHECK(close(*bytes.bits_per_byte(), 8.0, 256));
  CHECK(close(*bytes.bits_per_byte(), bytes.loss() / std::numbers::ln2, 256));

  CharacterSet characters;
  characters.add("a\u00e9\u6f22\U0001F600", "text");  // 1, 2, 3 and 4 bytes
  const CorpusLoss chars =
      corpus_loss(ctx, *model, ListSource({0, 3, 1, 2, 3}, {false, false, false, true, false}),
                  Vocabulary::chars(characters), options_for(4, 16));
  CHECK(chars.tokens == 3);
  CHECK(chars.bytes == 4 + 2 + 4);
  CHECK(close(*chars.bits_per_byte(), 3 * 2.0 / 10, 256));  // four ids, two bits each

  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("ab");
  const auto tokenizer =
      std::make_shared<BpeTokenizer>(BpeTokenizer::Parts{Bpe(tokens, {{97, 98}}, false, "t"),
                                                         PreTokenizer(kGpt2Pattern),
                                                         {{258, "<|endoftext|>"}},
                                                         false,
                                                         ""},
                                     "t");
  const auto large = bigram_model(ctx, Table(300, std::vector<double>(300, 0.0)));
  const Vocabulary bpe = Vocabulary::bpe(tokenizer);
  const CorpusLoss merged =
      corpus_loss(ctx, *large, ListSource({97, 256, 258, 98}), bpe, options_for(4, 16));
  CHECK(merged.tokens == 3);
  CHECK(merged.bytes == 2 + 0 + 1);  // the marker has no text
  CHECK(close(merged.loss(), std::log(259.0), 259));
  CHECK(rejection([&] {
          corpus_loss(ctx, *large, ListSource({97, 257}), bpe, options_for(4, 16));
        }).starts_with("list: holds an id without text: "));
}

TEST_CASE("corpus loss: max_tokens counts the first ones") {
  const Context ctx = cpu_context(1);
  const Table table = mixed_table(7);
  const auto model = bigram_model(ctx, table);
  const std::vector<int32_t> ids = mixed_ids(100, 7);
  for (const int64_t most : {1, 7, 20, 99, 1000}) {
    CorpusLossOptions options = options_for(3, 8);
    options.max_tokens = most;
    const CorpusLoss loss = corpus_loss(ctx, *model, ListSource(ids), Vocabulary::ids(7), options);
    const auto counted = static_cast<size_t>(std::min<int64_t>(most, 99));
    double expected = 0.0;
    for (size_t i = 1; i <= counted; ++i) expected += bigram_loss(table, ids[i - 1], ids[i], 7);
    CHECK(loss.tokens == static_cast<int64_t>(counted));
    CHECK(close(loss.nats, expected, 700));
  }
}

TEST_CASE("corpus loss: progress ends with all targets") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, mixed_table(7));
  const auto done = [&](const CorpusLossOptions& options) {
    std::vector<int64_t> shown;
    corpus_loss(ctx, *model, ListSource(mixed_ids(30, 7)), Vocabulary::ids(7), options,
                [&](int64_t now, int64_t all) {
                  CHECK(all == 29);
                  shown.push_back(now);
                });
    return shown;
  };
  CHECK(done(options_for(2, 8)) == std::vector<int64_t>{16, 24, 29});
  CHECK(done(options_for(3, 8, 3)) == std::vector<int64_t>{14, 23, 29});
}

TEST_CASE("corpus loss: options that do not fit are rejected") {
  const Context ctx = cpu_context(1);
  const auto model = bigram_model(ctx, mixed_table(7));
  const auto why = [&](const CorpusLossOptions& options, std::vector<int32_t> ids = {1, 2, 3},
                       int64_t vocab_size = 7) {
    return rejection(
        [&] { corpus_loss(ctx, *model, ListSource(ids), Vocabulary::ids(vocab_size), options); });
  };
  CHECK(why(options_for(0, 8)) == "batch_size must be at least 1; got 0");
  const std::string lengths =
      "seq_len must lie in 1..16, the model's max_position_embeddings; got ";
  CHECK(why(options_for(1, 0)) == lengths + "0");
  CHECK(why(options_for(1, 17)) == lengths + "17");
  CHECK(why(options_for(1, 8, 9)) == "stride must lie in 1..8, the tokens of a window; got 9");
  CHECK(why(options_for(1, 8, -1)) == "stride must lie in 1..8, the tokens of a window; got -1");
  CHECK(why(options_for(1, 8), {1}) ==
        "list: holds 1 tokens; a loss needs 2, one to predict from another");
  CHECK(why(options_for(1, 8), {1, 2}, 8) ==
        "the vocabulary has 8 ids, more than the model's vocab_size 7");
  CorpusLossOptions options = options_for(1, 8);
  options.max_tokens = -1;
  CHECK(why(options) == "max_tokens must not be negative; got -1");
}

TEST_CASE("corpus loss: a model with weights that are not finite is a failure") {
  const Context ctx = cpu_context(1);
  Table table = mixed_table(7);
  table[3][2] = std::nan("");
  const auto model = bigram_model(ctx, table);
  CHECK_THROWS_WITH(
      corpus_loss(ctx, *model, ListSource({1, 3, 2}), Vocabulary::ids(7), options_for(1, 8)),
      "a loss is not finite; the model's weights hold values that are not, or too large");
}

}  // namespace
}  // namespace xtrain
