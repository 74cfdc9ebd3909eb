#pragma once
// What a model must satisfy on every device.

#include <cmath>

#include "core/copy.h"
#include "support/catch.h"
#include "support/doubles.h"
#include "support/model_examples.h"
#include "support/op_tests.h"

namespace xtrain {

inline constexpr AttentionKind kBothAttentions[] = {AttentionKind::composed, AttentionKind::flash};

inline Exec exec_of(Dtype dtype, AttentionKind attention) {
  Exec exec;
  exec.dtype = dtype;
  exec.attention = attention;
  return exec;
}

inline void require_close(const ModelValues& got, const ModelValues& expected, double limit) {
  CHECK(std::abs(got.loss - expected.loss) <= limit * std::abs(expected.loss));
  for (size_t i = 0; i < expected.names.size(); ++i) {
    INFO("gradient of " << expected.names[i]);
    CHECK(relative_difference(got.gradients[i], expected.gradients[i]) <= limit);
  }
}

inline void require_same_bits(const ModelValues& got, const ModelValues& expected) {
  CHECK(got.loss == expected.loss);
  CHECK(got.gradients == expected.gradients);
}

// Checks that recompute changes no bit, with and without dropout, and keeps fewer bytes.
inline void check_recompute(Context ctx, Dtype dtype, double dropout) {
  ctx.training = true;
  ctx.random.seed = 17;
  for (const auto& [name, plain] : small_models()) {
    ModelConfig config = plain;
    config.num_hidden_layers = 3;
    config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = dropout;
    TinyTransformer model(ctx, config, dtype);
    model.initialize(ctx, 3);
    const TokenBatch batch = random_batch(ctx, 3, 16, config.vocab_size, 9);
    for (const auto& [attention, fused] : {std::pair{AttentionKind::composed, true},
                                           {AttentionKind::flash, true},
                                           {AttentionKind::flash, false}}) {
      Exec exec = exec_of(dtype, attention);
      exec.fused = fused;
      const ModelValues expected = loss_and_gradients(ctx, model, batch, exec);
      const auto saved_bytes = [&] {
        Tape tape(ctx);
        model.loss(ctx, &tape, batch, exec);
        return tape.saved_bytes();
      };
      const int64_t kept = saved_bytes();
      for (RecomputeLevel level :
           {RecomputeLevel::activations, RecomputeLevel::attention, RecomputeLevel::block}) {
        exec.recompute = level;
        INFO(name << " in " << dtype << ", attention " << static_cast<int>(attention) << ", fused "
                  << fused << ", recompute " << static_cast<int>(level));
        require_same_bits(loss_and_gradients(ctx, model, batch, exec), expected);
        if (fused && level == RecomputeLevel::activations) {
          CHECK(saved_bytes() == kept);  // fused ones are not kept without recompute either
        } else {
          CHECK(saved_bytes() < kept);
        }
      }
    }
  }
}

}  // namespace xtrain
