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
