#include "model/tiny_transformer.h"

#include <algorithm>
#include <cmath>

#include "core/copy.h"
#include "core/error.h"
#include "model/layers.h"
#include "model/model_checks.h"
#include "support/rejection.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

std::vector<double> logits_of(const Context& ctx, TinyTransformer& model,
                              const std::vector<int32_t>& inputs, int64_t rows, const Exec& exec) {
  const Tensor logits = model.logits(ctx, nullptr, token_batch(ctx, inputs, {}, rows), exec).value;
  return as_doubles(ctx, logits);
}

struct AttentionRun {
  int64_t kept;     // bytes
  uint64_t writes;  // to the gradient of the packed projection
};
constexpr int64_t kRows = 2, kTokens = 8;

// Forward and backward of one attention block behind its projection.
AttentionRun run_attention(const ModelConfig& config, Dtype dtype) {
  const Context ctx = cpu_context(1);
  ParameterSet parameters;
  const SelfAttention attention(parameters, "attention", config, 0.1, 0);
  parameters.allocate(ctx, dtype);
  fill(ctx, parameters.values(), 0.5);
  const RopeTable table = rope_table(ctx, kTokens, config.head_dim, config.rope_theta, dtype);
  const bool turns = config.positions == Positions::rope;
  Tape tape(ctx);
  const Pass pass{ctx,
                  &tape,
                  exec_of(dtype, AttentionKind::flash),
                  turns ? &table : nullptr,
                  zeros(ctx, {kRows, kTokens}, Dtype::i32),
                  causal_mask(ctx, kRows, kTokens, kTokens)};
  const Shape packed{kRows, kTokens, attention.qkv.weight->shape[0]};
  const Var x = tape.leaf(zeros(ctx, packed, dtype), dtype), y = attention(pass, x);
  const int64_t kept = tape.saved_bytes();
  const Tensor dy = zeros(ctx, y.shape(), dtype);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return {kept, tape.grad(x).version()};
}

}  // namespace

TEST_CASE("every model kind's gradients equal finite differences", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models()) {
    for (AttentionKind attention : kBothAttentions) {
      INFO(name << ", attention " << static_cast<int>(attention));
      TinyTransformer model(ctx, config, Dtype::f64);
      model.initialize(ctx, 3);
      const TokenBatch batch = random_batch(ctx, 2, 7, config.vocab_size, 8);
      const Exec exec = exec_of(Dtype::f64, attention);
      GradCheckOptions options;
      options.max_elements = 12;
      const auto results = grad_check(
          ctx, model.parameters(),
          [&](Tape* tape) { return model.loss(ctx, tape, batch, exec).sum; }, options);
      for (size_t i = 0; i < results.size(); ++i) {
        INFO(model.parameters().list()[i].name);
        CHECK(results[i].relative_error <= kGradCheckTolerance);
      }
    }
  }
}

TEST_CASE("a model's parameter count is that of its config", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models()) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f32);
    int64_t count = 0;
    for (const Parameter& p : model.parameters().list()) count += numel_of(p.shape);
    CHECK(count == parameter_count(config));
  }
}

TEST_CASE("flash and composed models agree in loss and every gradient", "[model]") {
  for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
    const Context ctx = cpu_context(2);
    for (const auto& [name, config] : small_models()) {
      INFO(name << " in " << dtype);
      TinyTransformer model(ctx, config, dtype);
      model.initialize(ctx, 3);
      const TokenBatch batch = random_batch(ctx, 3, 16, config.vocab_size, 9);
      const auto composed =
          loss_and_gradients(ctx, model, batch, exec_of(dtype, AttentionKind::composed));
      const auto flash =
          loss_and_gradients(ctx, model, batch, exec_of(dtype, AttentionKind::flash));
      require_close(flash, composed, twin_tolerance(dtype));
    }
  }
}

TEST_CASE("every way to compute one checkpoint gives one loss", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models()[3].config;
  TinyTransformer oracle(ctx, config, Dtype::f64);
  oracle.initialize(ctx, 3);
  const TokenBatch batch = random_batch(ctx, 3, 16, config.vocab_size, 9);
  const double expected =
      loss_and_gradients(ctx, oracle, batch, exec_of(Dtype::f64, AttentionKind::composed)).loss;
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    TinyTransformer model(ctx, config, dtype);
    model.initialize(ctx, 3);
    for (AttentionKind attention : kBothAttentions) {
      for (RecomputeLevel level : {RecomputeLevel::none, RecomputeLevel::activations,
                                   RecomputeLevel::attention, RecomputeLevel::block}) {
        for (bool fused : {true, false}) {
          INFO(dtype << ", attention " << static_cast<int>(attention) << ", recompute "
                     << static_cast<int>(level) << ", fused " << fused);
          const Exec exec{attention, level, dtype, fused};
          const double loss = loss_and_gradients(ctx, model, batch, exec).loss;
          CHECK(std::abs(loss - expected) <= twin_tolerance(dtype) * expected);
        }
      }
    }
  }
}

TEST_CASE("the tape tells which nodes ran", "[model]") {
  const Context ctx = cpu_context(1);
  const ModelConfig config = small_models()[3].config;
  TinyTransformer model(ctx, config, Dtype::f32);
  model.initialize(ctx, 3);
  const TokenBatch batch = random_batch(ctx, 1, 8, config.vocab_size, 9);
  const auto count = [&](const Exec& exec, const std::string& node) {
    Tape tape(ctx);
    model.loss(ctx, &tape, batch, exec);
    const std::vector<std::string> names = tape.node_names();
    return std::count(names.begin(), names.end(), node);
  };
  Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
  CHECK(count(exec, "flash_attention") == 2);
  CHECK(count(exec, "softmax") == 0);
  CHECK(count(exec, "norm_linear") == 4);
  CHECK(count(exec, "qk_norm_rope") == 2);
  CHECK(count(exec, "linear") == 2);  // behind attention
  CHECK(count(exec, "swiglu_linear") == 2);
  CHECK(count(exec, "add_norm") == 1);
  CHECK(count(exec, "linear_cross_entropy") == 1);
  exec.fused = false;
  for (const char* fat : {"norm_linear", "qk_norm_rope", "swiglu_linear", "swiglu", "add_norm",
                          "linear_cross_entropy"}) {
    INFO(fat);
    CHECK(count(exec, fat) == 0);
  }
  CHECK(count(exec, "linear") == 4 * 2 + 1);
  exec.attention = AttentionKind::composed;
  CHECK(count(exec, "flash_attention") == 0);
  CHECK(count(exec, "matmul") == 4);
  exec.recompute = RecomputeLevel::block;
  CHECK(count(exec, "recompute") == 2);
  CHECK(count(exec, "matmul") == 0);
}

TEST_CASE("fat nodes keep what they read and not what they project", "[model]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t B = 2, T = 8;
  const ModelConfig config = small_models()[0].config;
  REQUIRE(config.model_type == ModelType::gpt2);  // whose other nodes are those of the twin
  TinyTransformer model(ctx, config, Dtype::f32);
  model.initialize(ctx, 3);
  const TokenBatch batch = random_batch(ctx, B, T, config.vocab_size, 9);
  const auto saved_bytes = [&](bool fused) {
    Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
    exec.fused = fused;
    Tape tape(ctx);
    model.logits(ctx, &tape, batch, exec);
    return tape.saved_bytes();
  };
  const int64_t of_layer = 2 * config.hidden_size + config.intermediate_size;  // a token's elements
  CHECK(saved_bytes(false) - saved_bytes(true) ==
        config.num_hidden_layers * B * T * of_layer * size_of(Dtype::f32));
}

TEST_CASE("attention writes each part of a packed projection's gradient once", "[model]") {
  for (const auto& [name, config] : small_models()) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(name << " in " << dtype);
      // dq, dk and dv; with a node for dq and dk before attention, what that makes of them, and dv.
      const bool turns = config.positions == Positions::rope;
      CHECK(run_attention(config, dtype).writes == (turns ? 2 : 3));
    }
  }
}

TEST_CASE("attention without QK-norm keeps no projection beside its parts", "[model]") {
  const ModelConfig config = small_models()[2].config;
  REQUIRE(config.model_type == ModelType::qwen2);
  const int64_t D = config.head_dim, H = config.num_attention_heads;
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype);
    const int64_t wide = size_of(accumulator_dtype(dtype));
    // Of a token: queries, keys, values and the heads' outputs; a sum a head; its position.
    const int64_t of_token = (2 * H + 2 * config.num_key_value_heads) * D * size_of(dtype) +
                             H * wide + size_of(Dtype::i32);
    const int64_t table = kTokens * D * wide, mask = kRows * 2 * size_of(Dtype::i32);
    CHECK(run_attention(config, dtype).kept == kRows * kTokens * of_token + table + mask);
  }
}

TEST_CASE("recompute of activations runs no product again and keeps what the activation reads",
          "[model]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t B = 2, T = 8;
  for (const auto& [name, config] : small_models()) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f32);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, B, T, config.vocab_size, 9);
    for (const bool fused : {false, true}) {
      std::vector<std::string> nodes[2];
      int64_t bytes[2];
      for (const bool again : {false, true}) {
        Exec exec = exec_of(Dtype::f32, AttentionKind::flash);
        exec.fused = fused;
        if (again) exec.recompute = RecomputeLevel::activations;
        Tape tape(ctx);
        model.loss(ctx, &tape, batch, exec);
        nodes[again] = tape.node_names();
        bytes[again] = tape.saved_bytes();
      }
      CHECK(nodes[true] == nodes[false]);
      const int64_t activations =
          config.num_hidden_layers * B * T * config.intermediate_size * size_of(Dtype::f32);
      CHECK(bytes[false] - bytes[true] == (fused ? 0 : activations));  // fused ones are never kept
    }
  }
}

TEST_CASE("recompute gives the same bits and keeps less", "[model]") {
  for (double dropout : {0.0, 0.1}) check_recompute(cpu_context(2), Dtype::f32, dropout);
}

TEST_CASE("micro-batches that count differently many targets add up to one batch", "[model]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t B = 4, T = 8, V = 11;
  const ModelConfig config = small_models(V)[1].config;
  const std::vector<int32_t> inputs = to_host<int32_t>(ctx, random_batch(ctx, B, T, V, 5).inputs);
  std::vector<int32_t> targets(inputs.rbegin(), inputs.rend());
  std::fill(targets.begin() + 2 * T + 1, targets.end(), kIgnoreIndex);  // 16 and 1 count
  for (const auto& [dtype, limit] :
       {std::pair{Dtype::f64, 1e-12}, {Dtype::f32, 1e-6}, {Dtype::bf16, 1e-2}}) {
    INFO(dtype);
    TinyTransformer model(ctx, config, dtype);
    model.initialize(ctx, 3);
    const Exec exec = exec_of(dtype, AttentionKind::flash);
    const ModelValues whole =
        loss_and_gradients(ctx, model, token_batch(ctx, inputs, targets, B), exec);
    model.parameters().clear_grads();
    double sum = 0.0, count = 0.0;
    for (int64_t first : {0, 2}) {
      const auto half = [&](const std::vector<int32_t>& ids) {
        return std::span(ids).subspan(first * T, 2 * T);
      };
      Tape tape(ctx);
      const Loss loss =
          model.loss(ctx, &tape, token_batch(ctx, half(inputs), half(targets), 2), exec);
      sum += to_host<double>(ctx, cast(ctx, loss.sum.value, Dtype::f64))[0];
      count += static_cast<double>(to_host<int64_t>(ctx, loss.count)[0]);
      tape.backward(loss.sum);
    }
    CHECK(count == 17.0);
    CHECK(std::abs(sum / count - whole.loss) <= limit * whole.loss);
    for (size_t i = 0; i < whole.names.size(); ++i) {
      INFO("gradient of " << whole.names[i]);
      const Tensor grad = cast(ctx, model.parameters().list()[i].grad, Dtype::f64);
      CHECK(relative_difference(to_host<double>(ctx, grad), whole.gradients[i]) <= limit);
    }
  }
}

TEST_CASE("the number of threads does not change a bit", "[model]") {
  for (const auto& [name, plain] : small_models()) {
    INFO(name);
    ModelConfig config = plain;
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0.1;
    const auto run = [&](int threads, Dtype dtype) {
      Context ctx = cpu_context(threads);
      ctx.training = true;
      TinyTransformer model(ctx, config, dtype);
      model.initialize(ctx, 3);
      return loss_and_gradients(ctx, model, random_batch(ctx, 5, 16, config.vocab_size, 9),
                                exec_of(dtype, AttentionKind::flash));
    };
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const ModelValues expected = run(1, dtype);
      for (int threads : {2, 3, 8}) require_same_bits(run(threads, dtype), expected);
    }
  }
}

TEST_CASE("later tokens and other sequences leave earlier logits as they are", "[model]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t B = 2, T = 16, V = 11;
  for (const auto& [name, config] : small_models(V, T)) {
    TinyTransformer model(ctx, config, Dtype::f32);
    model.initialize(ctx, 3);
    const RandomStream stream = random_stream(4, 0, 0);
    std::vector<int32_t> inputs(B * T);
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>(random_below(stream, 0, i, V));
    }
    for (AttentionKind attention : kBothAttentions) {
      INFO(name << ", attention " << static_cast<int>(attention));
      const Exec exec = exec_of(Dtype::f32, attention);
      const std::vector<double> before = logits_of(ctx, model, inputs, B, exec);
      for (int64_t changed : {int64_t{1}, int64_t{7}, T - 1, T, 2 * T - 1}) {
        std::vector<int32_t> other = inputs;
        other[changed] = (other[changed] + 1) % V;
        const std::vector<double> after = logits_of(ctx, model, other, B, exec);
        INFO("token " << changed);
        CHECK(std::equal(before.begin(), before.begin() + std::min(changed, T) * V, after.begin()));
        if (changed < T)
          CHECK(std::equal(before.begin() + T * V, before.end(), after.begin() + T * V));
        CHECK(before != after);
      }
    }
  }
}

TEST_CASE("sequences together or one by one give the same logits", "[model]") {
  const Context ctx = cpu_context(2);
  constexpr int64_t B = 3, T = 13, V = 11;
  for (const auto& [name, config] : small_models(V)) {
    TinyTransformer model(ctx, config, Dtype::f32);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, B, T, V, 21);
    const std::vector<int32_t> inputs = to_host<int32_t>(ctx, batch.inputs);
    for (AttentionKind attention : kBothAttentions) {
      INFO(name << ", attention " << static_cast<int>(attention));
      const Exec exec = exec_of(Dtype::f32, attention);
      std::vector<double> one_by_one;
      for (int64_t b = 0; b < B; ++b) {
        const std::vector<int32_t> row(inputs.begin() + b * T, inputs.begin() + (b + 1) * T);
        const std::vector<double> logits = logits_of(ctx, model, row, 1, exec);
        one_by_one.insert(one_by_one.end(), logits.begin(), logits.end());
      }
      CHECK(relative_difference(logits_of(ctx, model, inputs, B, exec), one_by_one) <=
            twin_tolerance(Dtype::f32));
    }
  }
}

TEST_CASE("the logits behind the last token are the last of all logits", "[model]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t B = 3, T = 9, V = 11;
  for (const auto& [name, config] : small_models(V)) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f64);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, B, T, V, 21);
    const std::vector<int32_t> ids = to_host<int32_t>(ctx, batch.inputs);
    const Exec exec = exec_of(Dtype::f64, AttentionKind::flash);
    const std::vector<double> all = as_doubles(ctx, model.logits(ctx, nullptr, batch, exec).value);
    std::vector<std::vector<int32_t>> rows;
    std::vector<double> expected;
    for (int64_t b = 0; b < B; ++b) {
      const int64_t length = T - 3 * b;
      rows.emplace_back(ids.begin() + b * T, ids.begin() + b * T + length);
      const auto last = all.begin() + (b * T + length - 1) * V;
      expected.insert(expected.end(), last, last + V);
    }
    CHECK(as_doubles(ctx, model.next_logits(ctx, rows, exec)) == expected);
  }
}

TEST_CASE("one batch accumulated four times has four times its gradient", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [dtype, limit] : {std::pair{Dtype::f32, 1e-6}, std::pair{Dtype::bf16, 1e-2}}) {
    const ModelConfig config = small_models()[3].config;
    TinyTransformer model(ctx, config, dtype);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, 2, 16, config.vocab_size, 9);
    const Exec exec = exec_of(dtype, AttentionKind::flash);
    const ModelValues once = loss_and_gradients(ctx, model, batch, exec);
    model.parameters().clear_grads();
    for (int i = 0; i < 4; ++i) {
      Tape tape(ctx);
      tape.backward(model.loss(ctx, &tape, batch, exec).sum);
    }
    for (size_t i = 0; i < once.names.size(); ++i) {
      INFO(once.names[i] << " in " << dtype);
      std::vector<double> quarter =
          to_host<double>(ctx, cast(ctx, model.parameters().list()[i].grad, Dtype::f64));
      for (double& x : quarter) x /= 4.0;
      CHECK(relative_difference(quarter, once.gradients[i]) <= limit);
    }
  }
}

TEST_CASE("each parameter is ready once, a tied embedding last", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models()) {
    for (RecomputeLevel level : {RecomputeLevel::none, RecomputeLevel::activations,
                                 RecomputeLevel::attention, RecomputeLevel::block}) {
      INFO(name << ", recompute " << static_cast<int>(level));
      TinyTransformer model(ctx, config, Dtype::f32);
      model.initialize(ctx, 3);
      Exec exec;
      exec.recompute = level;
      Tape tape(ctx);
      const Loss loss = model.loss(ctx, &tape, random_batch(ctx, 1, 8, config.vocab_size, 2), exec);
      std::vector<std::string> ready;
      tape.backward(loss.sum, [&](Parameter& p) {
        CHECK(p.has_grad);
        ready.push_back(p.name);
      });
      CHECK(ready.size() == model.parameters().list().size());
      CHECK(ready.back().find("embed") != std::string::npos);
      std::sort(ready.begin(), ready.end());
      CHECK(std::adjacent_find(ready.begin(), ready.end()) == ready.end());
    }
  }
}

TEST_CASE("a sequence longer than the positions is refused with both lengths", "[model]") {
  const Context ctx = cpu_context(1);
  for (const auto& [name, config] : small_models(11, 8)) {
    INFO(name);
    TinyTransformer model(ctx, config, Dtype::f32);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, 1, 9, 11, 2);
    CHECK(rejection([&] { model.loss(ctx, nullptr, batch, Exec{}); }) ==
          "model: sequence length 9 must not exceed model.max_position_embeddings 8");
  }
}
