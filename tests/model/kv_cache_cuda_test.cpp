#include "model/cached_passes.h"
#include "model/kv_cache.h"
#include "support/gpu.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr int64_t kVocab = 11, kLength = 300;

// The logits behind each prefix, on one device.
BothWays ways_on(const Context& ctx, const ModelConfig& config, const Exec& exec) {
  TinyTransformer model(ctx, config, exec.dtype, ModelUse::inference);
  model.initialize(ctx, 3);
  const Rows rows = random_rows(std::vector<int64_t>{kLength, kLength - 7, 30}, kVocab);
  return both_ways(ctx, model, rows, {270, 131, 1}, 20, kLength, exec);
}

}  // namespace

TEST_CASE("on the GPU, one token a pass over a cache gives the logits of whole sequences",
          "[cuda]") {
  for (const auto& [name, config] : small_models(kVocab, kLength)) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      for (const AttentionKind attention : kBothAttentions) {
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention));
        const Exec exec = exec_of(dtype, attention);
        const BothWays ways = ways_on(test_cuda_context(), config, exec);
        REQUIRE(ways.cached.size() == ways.full.size());
        for (size_t n = 0; n < ways.cached.size(); ++n) {
          CHECK(relative_difference(ways.cached[n], ways.full[n]) <= twin_tolerance(dtype));
        }
        const BothWays again = ways_on(test_cuda_context(), config, exec);
        CHECK(ways.cached == again.cached);
      }
    }
  }
}

TEST_CASE("the logits of the GPU's cache are those of the CPU's", "[cuda]") {
  for (const auto& [name, config] : small_models(kVocab, kLength)) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      INFO(name << " in " << dtype);
      const Exec exec = exec_of(dtype, AttentionKind::flash);
      const BothWays gpu = ways_on(test_cuda_context(), config, exec);
      const BothWays cpu = ways_on(cpu_context(2), config, exec);
      for (size_t n = 0; n < cpu.cached.size(); ++n) {
        CHECK(relative_difference(gpu.cached[n], cpu.cached[n]) <= twin_tolerance(dtype));
      }
    }
  }
}

TEST_CASE("on the GPU, a row that ends leaves the others as they are", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const ModelConfig config = small_models(kVocab, kLength)[3].config;
  const Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  TinyTransformer model(ctx, config, Dtype::f32, ModelUse::inference);
  model.initialize(ctx, 3);
  const Rows rows = random_rows(std::vector<int64_t>{40, 40}, kVocab);
  const std::vector<int64_t> first{10, 4};
  const BothWays expected = both_ways(ctx, model, rows, first, 6, kLength, exec);
  KvCache cache(ctx, config, 2, kLength, exec);
  model.prefill(ctx, cache, beginnings(rows, first), exec);
  for (int64_t n = 0; n < 6; ++n) {
    if (n == 3) cache.end_row(ctx, 0);
    const std::vector<int64_t> at{10 + n, 4 + n};
    const std::vector<double> logits =
        as_doubles(ctx, model.decode(ctx, cache, tokens_at(ctx, rows, at), exec));
    CHECK(
        std::equal(logits.begin() + kVocab, logits.end(), expected.cached[n + 1].begin() + kVocab));
  }
  CHECK(cache.length(0) == 0);
  CHECK(cache.length(1) == 10);
}
