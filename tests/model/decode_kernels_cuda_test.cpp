#include <algorithm>

#include "core/cuda/queue_cuda.h"
#include "model/cached_passes.h"
#include "support/gpu.h"
#include "tools/kernel_times.h"

using namespace xtrain;

namespace {

// Qwen3 of sizes that the kernels of generation serve.
ModelConfig small_qwen3() {
  for (auto& [name, config] : small_models(11, 60)) {
    if (name != "qwen3") continue;
    config.head_dim = 64;
    config.intermediate_size = 32;
    return config;
  }
  fail("tests: small_models must hold qwen3");
}

// How many runs there were of the kernels whose names hold one of `words`.
int64_t runs_of(const std::vector<KernelTime>& kernels, const std::vector<std::string>& words) {
  int64_t runs = 0;
  for (const KernelTime& kernel : kernels) {
    const bool found = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return kernel.name.find(word) != std::string::npos;
    });
    if (found) runs += kernel.runs;
  }
  return runs;
}

}  // namespace

TEST_CASE("a token on the GPU is made by the kernels of generation", "[cuda]") {
  const Context& ctx = test_cuda_context();
  if (!can_note_kernels() || !runs_sm90a(Cuda{ctx})) return;
  const ModelConfig config = small_qwen3();
  const Exec exec = exec_of(Dtype::bf16, AttentionKind::flash);
  TinyTransformer model(ctx, config, exec.dtype, ModelUse::inference);
  model.initialize(ctx, 3);
  KvCache cache(ctx, config, 1, 60, exec);
  model.prefill(ctx, cache, random_rows(std::vector<int64_t>{3}, config.vocab_size), exec);
  ctx.queue->synchronize();

  note_kernels();
  model.decode(ctx, cache, from_host(ctx, std::vector<int32_t>{4}, {1}), exec);
  ctx.queue->synchronize();
  const std::vector<KernelTime> kernels = noted_kernels();
  std::string names;
  for (const KernelTime& kernel : kernels) names += "\n" + kernel.name;
  INFO("the kernels of a token:" << names);

  // Of a layer: to queries, keys and values, from the heads, to gate and up, and down.
  const int64_t layers = config.num_hidden_layers, products = 4 * layers + 1;
  CHECK(runs_of(kernels, {"linear_few_rows"}) == products);
  CHECK(runs_of(kernels, {"NormedRows"}) == 2 * layers);
  CHECK(runs_of(kernels, {"GatedRows"}) == layers);
  CHECK(runs_of(kernels, {"attend_to_cache"}) == layers);
  CHECK(runs_of(kernels, {"gemm", "nvjet", "cutlass", "cublas", "multiply_few_rows",
                          "multiply_tiles"}) == 0);
  CHECK(runs_of(kernels, {"flash_forward", "attend_to_part", "forward_by_queries"}) == 0);
  CHECK(runs_of(kernels, {"turn_heads", "forward_tokens", "gate_forward"}) == 0);
}
