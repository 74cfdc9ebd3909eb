#pragma once
// What a decoder must satisfy on every device.

#include "model/cached_passes.h"
#include "model/decoder.h"

namespace xtrain {

// Gives the bits of passes one by one, also behind a row's end, and other rows' ends.
inline void check_decoder(const Context& ctx, const ModelConfig& config, const Exec& exec) {
  constexpr int64_t kLength = 60;
  TinyTransformer model(ctx, config, exec.dtype, ModelUse::inference);
  model.initialize(ctx, 3);
  const Rows rows = random_rows(std::vector<int64_t>{kLength, kLength, kLength}, config.vocab_size);
  const std::vector<int64_t> first{20, 7, 1};
  KvCache recorded(ctx, config, 3, kLength, exec), plain(ctx, config, 3, kLength, exec);
  Decoder decoder(ctx, model, recorded, exec);
  for (KvCache* cache : {&recorded, &plain}) {
    model.prefill(ctx, *cache, beginnings(rows, first), exec);
  }
  for (int64_t n = 0; n < 30; ++n) {
    if (n == 11) {
      for (KvCache* cache : {&recorded, &plain}) cache->end_row(ctx, 1);
    }
    std::vector<int32_t> tokens;
    for (size_t b = 0; b < rows.size(); ++b) tokens.push_back(rows[b][first[b] + n]);
    const std::vector<double> got = as_doubles(ctx, decoder.decode(tokens));
    const std::vector<double> expected =
        as_doubles(ctx, model.decode(ctx, plain, from_host(ctx, tokens, {3}), exec));
    const int64_t V = config.vocab_size;
    for (int64_t b = 0; b < 3; ++b) {
      if (b == 1 && n >= 11) continue;  // has ended
      CHECK(std::equal(got.begin() + b * V, got.begin() + (b + 1) * V, expected.begin() + b * V));
    }
    CHECK(recorded.length(0) == plain.length(0));
    CHECK(recorded.length(1) == plain.length(1));
  }
}

}  // namespace xtrain
