#include <algorithm>
#include <numeric>

#include "model/model_checks.h"
#include "model/tiny_transformer.h"
#include "support/gpu.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

// The smallest GPT-2's layers, eight of them.
ModelConfig gpt2_shaped() {
  ModelConfig config;
  config.model_type = ModelType::gpt2;
  config.vocab_size = 4096;
  config.hidden_size = 768;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 12;
  config = with_defaults(config);
  config.max_position_embeddings = 512;
  return config;
}

// As in configs/tiny.json.
ModelConfig qwen3_shaped() {
  ModelConfig config;
  config.model_type = ModelType::qwen3;
  config.vocab_size = 256;
  config.hidden_size = 128;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 4;
  config = with_defaults(config);
  config.max_position_embeddings = 128;
  config.tie_word_embeddings = true;
  return config;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Of |a - b|: the mean, the 99th percentile, and the mean as a share of that of |b|.
struct Differences {
  double mean = 0.0, percentile99 = 0.0, relative_mean = 0.0;

  Differences(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    std::vector<double> sizes(a.size());
    double reference = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      sizes[i] = std::abs(a[i] - b[i]);
      reference += std::abs(b[i]);
    }
    mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(a.size());
    relative_mean = mean * static_cast<double>(a.size()) / reference;
    const auto place = sizes.begin() + static_cast<int64_t>(0.99 * static_cast<double>(a.size()));
    std::nth_element(sizes.begin(), place, sizes.end());
    percentile99 = *place;
  }
};

struct Computed {
  ModelValues values;
  std::vector<double> logits;
};

Computed compute(const Context& ctx, TinyTransformer& model, const TokenBatch& batch,
                 const Exec& exec) {
  return {loss_and_gradients(ctx, model, batch, exec),
          as_doubles(ctx, model.logits(ctx, nullptr, batch, exec).value)};
}

std::vector<double> all_gradients(const ModelValues& values) {
  std::vector<double> all;
  for (const auto& each : values.gradients) all.insert(all.end(), each.begin(), each.end());
  return all;
}

// Composed and flash of one model on one batch.
std::pair<Computed, Computed> both_attentions(const ModelConfig& config, int64_t B, int64_t T,
                                              Dtype dtype) {
  const Context& ctx = test_cuda_context();
  TinyTransformer model(ctx, config, dtype);
  model.initialize(ctx, 3);
  const TokenBatch batch = random_batch(ctx, B, T, config.vocab_size, 9);
  return {compute(ctx, model, batch, exec_of(dtype, AttentionKind::composed)),
          compute(ctx, model, batch, exec_of(dtype, AttentionKind::flash))};
}

}  // namespace

TEST_CASE("on the GPU, flash and composed models of real size agree in f32", "[cuda]") {
  const auto [composed, flash] = both_attentions(gpt2_shaped(), 2, 512, Dtype::f32);
  CHECK(std::abs(flash.values.loss - composed.values.loss) <= kModelTwins.f32_loss);
  CHECK(largest_difference(flash.logits, composed.logits) <= kModelTwins.f32_logits);
  for (size_t i = 0; i < composed.values.names.size(); ++i) {
    INFO("gradient of " << composed.values.names[i]);
    CHECK(relative_difference(flash.values.gradients[i], composed.values.gradients[i]) <=
          kModelTwins.f32_gradients);
  }
}

TEST_CASE("on the GPU, flash and composed models agree in bf16", "[cuda]") {
  const auto [composed, flash] = both_attentions(qwen3_shaped(), 32, 128, Dtype::bf16);
  CHECK(std::abs(flash.values.loss - composed.values.loss) <= kModelTwins.bf16_loss);
  const Differences logits(flash.logits, composed.logits);
  CHECK(logits.mean <= kModelTwins.bf16_logits_mean);
  CHECK(logits.percentile99 <= kModelTwins.bf16_logits_percentile99);
  const Differences gradients(all_gradients(flash.values), all_gradients(composed.values));
  CHECK(gradients.relative_mean <= kModelTwins.bf16_gradients_mean);
}

TEST_CASE("the GPU's f32 logits are the CPU's", "[cuda]") {
  const ModelConfig config = qwen3_shaped();
  for (AttentionKind attention : kBothAttentions) {
    INFO("attention " << static_cast<int>(attention));
    const auto logits_on = [&](const Context& ctx) {
      TinyTransformer model(ctx, config, Dtype::f32);
      model.initialize(ctx, 3);
      const TokenBatch batch = random_batch(ctx, 4, 128, config.vocab_size, 9);
      const Exec exec = exec_of(Dtype::f32, attention);
      return as_doubles(ctx, model.logits(ctx, nullptr, batch, exec).value);
    };
    CHECK(largest_difference(logits_on(test_cuda_context()), logits_on(cpu_context())) <=
          kDeviceLogits);
  }
}

TEST_CASE("on the GPU, every small model's loss and gradients are the CPU's, dropout included",
          "[cuda]") {
  for (const auto& [name, plain] : small_models()) {
    ModelConfig config = plain;
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0.2;
    for (AttentionKind attention : kBothAttentions) {
      for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention));
        const auto values_on = [&](Context ctx) {
          TinyTransformer model(ctx, config, dtype);
          model.initialize(ctx, 3);
          const Tensor random = from_host(ctx, std::vector<int64_t>{5, 1000}, {2});
          ctx.training = true;
          const int64_t* numbers = random.data<int64_t>();
          ctx.random = RandomKey{17, numbers, numbers + 1};
          return loss_and_gradients(ctx, model, random_batch(ctx, 3, 16, config.vocab_size, 9),
                                    exec_of(dtype, attention));
        };
        require_close(values_on(test_cuda_context()), values_on(cpu_context(1)),
                      twin_tolerance(dtype));
      }
    }
  }
}

TEST_CASE("on the GPU, recompute gives the same bits and keeps less", "[cuda]") {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (double dropout : {0.0, 0.1}) check_recompute(test_cuda_context(), dtype, dropout);
  }
}

TEST_CASE("on the GPU, a model gives the same bits each time", "[cuda]") {
  const Context& ctx = test_cuda_context();
  ModelConfig config = gpt2_shaped();
  config.num_hidden_layers = 2;
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    TinyTransformer model(ctx, config, dtype);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, 2, 512, config.vocab_size, 9);
    for (AttentionKind attention : kBothAttentions) {
      INFO(dtype << ", attention " << static_cast<int>(attention));
      const Exec exec = exec_of(dtype, attention);
      const ModelValues expected = loss_and_gradients(ctx, model, batch, exec);
      for (int i = 0; i < 2; ++i) {
        require_same_bits(loss_and_gradients(ctx, model, batch, exec), expected);
      }
    }
  }
}

// Kernels take their places while those before them still run, and read what these write. The
// models are small, so that most of a kernel's time lies beside others.
TEST_CASE("on the GPU, kernels that begin ahead give the bits of those that are waited for",
          "[cuda]") {
  CudaOptions waiting;
  waiting.wait_after_launch = true;
  const auto values_on = [](const Context& ctx, const ModelConfig& config) {
    TinyTransformer model(ctx, config, Dtype::bf16);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, 2, 128, config.vocab_size, 9);
    std::vector<ModelValues> runs;
    for (int run = 0; run < 5; ++run) {
      const Exec exec = exec_of(Dtype::bf16, AttentionKind::flash);
      runs.push_back(loss_and_gradients(ctx, model, batch, exec));
    }
    return runs;
  };
  ModelConfig gpt2 = gpt2_shaped(), qwen3 = qwen3_shaped();
  gpt2.num_hidden_layers = qwen3.num_hidden_layers = 3;
  for (const ModelConfig& config : {gpt2, qwen3}) {
    const ModelValues expected = values_on(cuda_context(0, waiting), config)[0];
    for (const ModelValues& got : values_on(cuda_context(0, CudaOptions()), config)) {
      require_same_bits(got, expected);
    }
  }
}
