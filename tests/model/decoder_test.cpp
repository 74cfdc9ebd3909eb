#include "model/decoder.h"

#include "model/decoder_checks.h"
#include "support/rejection.h"

using namespace xtrain;

TEST_CASE("a decoder gives the bits of passes one by one", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models(11, 60)) {
    INFO(name);
    for (const AttentionKind attention : kBothAttentions) {
      check_decoder(ctx, config, exec_of(Dtype::f32, attention));
    }
  }
}

TEST_CASE("a decoder whose kernels take memory in several threads gives the same bits", "[model]") {
  constexpr int64_t V = 11, kRows = 64, kLength = 60;
  const ModelConfig config = small_models(V, kLength)[3].config;
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  const Rows rows = random_rows(std::vector<int64_t>(kRows, kLength), V);
  const std::vector<int64_t> first(kRows, 10);
  const auto logits = [&](int threads) {
    const Context ctx = cpu_context(threads);
    TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
    model.initialize(ctx, 3);
    KvCache cache(ctx, config, kRows, kLength, exec);
    model.prefill(ctx, cache, beginnings(rows, first), exec);
    Decoder decoder(ctx, model, cache, exec);
    std::vector<std::vector<double>> all;
    for (int64_t n = 0; n < 40; ++n) {
      std::vector<int32_t> tokens;
      for (const auto& row : rows) tokens.push_back(row[10 + n]);
      all.push_back(as_doubles(ctx, decoder.decode(tokens)));
    }
    return all;
  };
  const auto alone = logits(1);
  for (int run = 0; run < 5; ++run) CHECK(logits(4) == alone);
}

TEST_CASE("a decoder asks for memory once", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models(11, 60)[3].config;
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  KvCache cache(ctx, config, 1, 60, exec);
  model.prefill(ctx, cache, Rows{{1, 2, 3}}, exec);
  Decoder decoder(ctx, model, cache, exec);
  decoder.decode(std::vector<int32_t>{4});
  ctx.allocator->reset_peak();
  const int64_t before = ctx.allocator->peak_bytes();
  for (int i = 0; i < 20; ++i) decoder.decode(std::vector<int32_t>{5});
  CHECK(ctx.allocator->peak_bytes() - before <= 4);  // the token on its way
}

TEST_CASE("a decoder refuses tokens beyond its cache", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models(11, 60)[3].config;
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  KvCache cache(ctx, config, 1, 5, exec);
  model.prefill(ctx, cache, Rows{{1, 2, 3}}, exec);
  Decoder decoder(ctx, model, cache, exec);
  const std::vector<int32_t> token{4};
  decoder.decode(token);
  decoder.decode(token);
  CHECK(rejection([&] { decoder.decode(token); }) ==
        "cache: row 0 holds 5 of 5 tokens; 1 more do not fit");
}
