#include "model/kv_cache.h"

#include <algorithm>

#include "model/cached_passes.h"
#include "support/rejection.h"

using namespace xtrain;

TEST_CASE("one token a pass over a cache gives the bits of whole sequences", "[model]") {
  constexpr int64_t V = 11, T = 24;
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models(V, T)) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      TinyTransformer model(ctx, config, dtype, ModelUse::inference);
      model.initialize(ctx, 3);
      const std::vector<int64_t> lengths{T, T - 7, T - 3};
      const Rows rows = random_rows(lengths, V);
      for (const AttentionKind attention : kBothAttentions) {
        for (const bool fused : {true, false}) {
          INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention)
                    << ", fused " << fused);
          Exec exec = exec_of(dtype, attention);
          exec.fused = fused;
          const BothWays ways = both_ways(ctx, model, rows, {8, 1, 5}, 16, T, exec);
          CHECK(ways.cached == ways.full);
        }
      }
    }
  }
}

TEST_CASE("the bits stay those of whole sequences over many tiles of keys", "[model]") {
  constexpr int64_t V = 11, T = 300;
  const Context ctx = cpu_context(1);
  for (const size_t kind : {0, 3}) {
    const auto [name, config] = small_models(V, T)[kind];
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      INFO(name << " in " << dtype);
      TinyTransformer model(ctx, config, dtype, ModelUse::inference);
      model.initialize(ctx, 3);
      const std::vector<int64_t> lengths{T, T - 1};
      const Rows rows = random_rows(lengths, V);
      for (const int64_t first : {60, 125, 255, 270}) {
        const Exec exec = exec_of(dtype, AttentionKind::flash);
        const BothWays ways = both_ways(ctx, model, rows, {first, first - 37}, 12, T, exec);
        CHECK(ways.cached == ways.full);
      }
    }
  }
}

TEST_CASE("a row of several has the bits that it has alone", "[model]") {
  constexpr int64_t V = 11, T = 24;
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models(V, T)) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
    model.initialize(ctx, 3);
    const std::vector<int64_t> lengths{20, 16, 24}, first{9, 5, 13};
    const Rows rows = random_rows(lengths, V);
    const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
    const BothWays together = both_ways(ctx, model, rows, first, 11, T, exec);
    for (size_t b = 0; b < rows.size(); ++b) {
      // Another capacity, too: what lies behind a row's tokens is not read.
      const BothWays alone = both_ways(ctx, model, {rows[b]}, {first[b]}, 11, lengths[b], exec);
      for (size_t n = 0; n < alone.cached.size(); ++n) {
        const auto begin = together.cached[n].begin() + static_cast<int64_t>(b) * V;
        CHECK(std::equal(alone.cached[n].begin(), alone.cached[n].end(), begin));
      }
    }
  }
}

TEST_CASE("a row that ends leaves the others as they are and needs no room", "[model]") {
  constexpr int64_t V = 11, T = 16;
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models(V, T)[3].config;
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  const Rows rows = random_rows(std::vector<int64_t>{16, 16}, V);
  const std::vector<int64_t> first{10, 4};
  const BothWays expected = both_ways(ctx, model, rows, first, 6, T, exec);
  KvCache cache(ctx, config, 2, T, exec);
  model.prefill(ctx, cache, beginnings(rows, first), exec);
  CHECK(cache.length(0) == 10);
  for (int64_t n = 0; n < 12; ++n) {
    if (n == 3) cache.end_row(ctx, 0);
    const std::vector<int64_t> at{std::min<int64_t>(10 + n, 15), 4 + n};
    const std::vector<double> logits =
        as_doubles(ctx, model.decode(ctx, cache, tokens_at(ctx, rows, at), exec));
    if (n < 6)
      CHECK(std::equal(logits.begin() + V, logits.end(), expected.full[n + 1].begin() + V));
  }
  CHECK(cache.length(0) == 0);
  CHECK(cache.length(1) == 16);
}

TEST_CASE("tokens beyond a cache or a model are refused before anything runs", "[model]") {
  constexpr int64_t V = 11, T = 64;
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models(V, T)[1].config;
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  CHECK(rejection([&] { KvCache(ctx, config, 1, 65, exec); }) ==
        "cache: capacity must lie in 1..64 (model.max_position_embeddings); got 65");
  CHECK(rejection([&] { KvCache(ctx, config, 1, 0, exec); }).find("got 0") != std::string::npos);
  KvCache cache(ctx, config, 2, 16, exec);
  const Rows rows = random_rows(std::vector<int64_t>{16, 17}, V);
  CHECK(rejection([&] { model.prefill(ctx, cache, rows, exec); }) ==
        "cache: row 1 holds 0 of 16 tokens; 17 more do not fit");
  CHECK(cache.length(0) == 0);
  model.prefill(ctx, cache, Rows{rows[0], {1}}, exec);
  const Tensor tokens = from_host(ctx, std::vector<int32_t>{1, 1}, {2});
  CHECK(rejection([&] { model.decode(ctx, cache, tokens, exec); }) ==
        "cache: row 0 holds 16 of 16 tokens; 1 more do not fit");
  CHECK_THROWS_WITH(model.prefill(ctx, cache, Rows{{1}, {1}}, exec),
                    "model: prefill needs an empty cache; row 0 holds 16 tokens");
  CHECK(rejection([&] { model.next_logits(ctx, Rows{std::vector<int32_t>(65, 1)}, exec); }) ==
        "model: sequence length 65 must not exceed model.max_position_embeddings 64");
  CHECK(rejection([&] { model.next_logits(ctx, Rows{{}}, exec); }) ==
        "model: every row must hold at least one token");
}

namespace {

// The losses of a row's tokens from number `first` on, by one pass over it alone.
std::vector<double> last_losses(const Context& ctx, TinyTransformer& model,
                                const std::vector<int32_t>& row, int64_t first, const Exec& exec,
                                int64_t vocab_size) {
  const std::vector<int32_t> inputs(row.begin(), row.end() - 1),
      targets(row.begin() + 1, row.end());
  const std::vector<double> losses =
      as_doubles(ctx, model.losses(ctx, token_batch(ctx, inputs, targets, 1), exec, vocab_size));
  return {losses.begin() + (first - 1), losses.end()};
}

// Rows behind what a cache holds of them: each row's last token there, and the tokens behind it.
std::vector<double> cached_losses(const Context& ctx, TinyTransformer& model, KvCache& cache,
                                  const Rows& rows, std::span<const int64_t> held, int64_t time,
                                  const Exec& exec, int64_t vocab_size) {
  std::vector<int32_t> inputs, targets;
  std::vector<int64_t> lengths;
  for (size_t b = 0; b < rows.size(); ++b) {
    const size_t end = (b + 1) * time;
    const auto from = rows[b].begin() + held[b];
    lengths.push_back(rows[b].end() - from - 1);
    inputs.insert(inputs.end(), from, rows[b].end() - 1);
    targets.insert(targets.end(), from + 1, rows[b].end());
    inputs.resize(end, 0);
    targets.resize(end, kIgnoreIndex);
  }
  const TokenBatch batch = token_batch(ctx, inputs, targets, static_cast<int64_t>(rows.size()));
  return as_doubles(ctx, model.losses_behind(ctx, cache, batch, lengths, exec, vocab_size));
}

}  // namespace

TEST_CASE("losses behind a context that is read once have the bits of whole rows", "[model]") {
  constexpr int64_t V = 11, T = 24, kTime = 9;
  const Context ctx = cpu_context(1);
  // Of a context the last token begins what is read behind it: the second row has no other. Its
  // padding goes beyond the model's positions in the third.
  const std::vector<int64_t> held{9, 0, 19};
  const Rows contexts = random_rows(std::vector<int64_t>{10, 1, 20}, V);
  for (const auto& [name, config] : small_models(V, T)) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      TinyTransformer model(ctx, config, dtype, ModelUse::inference);
      model.initialize(ctx, 3);
      for (const AttentionKind attention : kBothAttentions) {
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention));
        const Exec exec = exec_of(dtype, attention);
        KvCache cache(ctx, config, 3, T, exec);
        model.read_on(ctx, cache, beginnings(contexts, held), exec);
        for (const std::vector<int64_t>& lengths :
             {std::vector<int64_t>{4, 2, 5}, {kTime, kTime, 1}, {1, 7, 0}, {4, 2, 5}}) {
          cache.rewind(ctx, held);
          Rows rows = contexts;
          for (size_t b = 0; b < rows.size(); ++b) {
            for (int64_t i = 0; i < lengths[b]; ++i) {
              rows[b].push_back(static_cast<int32_t>((lengths[0] + 3 * i + 5 * b) % (V - 1)));
            }
          }
          const std::vector<double> cached =
              cached_losses(ctx, model, cache, rows, held, kTime, exec, V - 1);
          for (size_t b = 0; b < rows.size(); ++b) {
            CHECK(cache.length(b) == held[b] + lengths[b]);
            std::vector<double> expected(kTime);
            if (lengths[b] > 0) {
              const auto last = last_losses(ctx, model, rows[b], held[b] + 1, exec, V - 1);
              std::copy(last.begin(), last.end(), expected.begin());
            }
            const auto begin = cached.begin() + static_cast<int64_t>(b) * kTime;
            CHECK(std::vector<double>(begin, begin + kTime) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("a cache goes back to what it holds and no further", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models(11, 16)[3].config;
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  KvCache cache(ctx, config, 2, 8, exec);
  model.read_on(ctx, cache, Rows{{}, {}}, exec);
  CHECK(cache.length(0) == 0);
  model.read_on(ctx, cache, Rows{{1, 2, 3}, {}}, exec);
  model.read_on(ctx, cache, Rows{{4}, {5, 6}}, exec);
  CHECK(cache.length(0) == 4);
  CHECK(cache.length(1) == 2);
  CHECK(to_host<int32_t>(ctx, cache.lengths()) == std::vector<int32_t>{4, 2});
  CHECK_THROWS_WITH(cache.rewind(ctx, std::vector<int64_t>{4, 3}),
                    "cache: row 1 holds 2 tokens; it cannot go back to 3");
  CHECK_THROWS_WITH(cache.rewind(ctx, std::vector<int64_t>{4}),
                    "cache: 2 rows need as many lengths; got 1");
  cache.rewind(ctx, std::vector<int64_t>{2, 2});
  CHECK(cache.length(0) == 2);
  CHECK(to_host<int32_t>(ctx, cache.lengths()) == std::vector<int32_t>{2, 2});
  CHECK(rejection([&] {
          model.read_on(ctx, cache, Rows{std::vector<int32_t>(7, 1), {}}, exec);
        }) == "cache: row 0 holds 2 of 8 tokens; 7 more do not fit");
}
