#pragma once
// A run of the trainer that takes a fraction of a second.

#include <functional>
#include <string>
#include <vector>

#include "core/config_reader.h"
#include "core/copy.h"
#include "train/trainer.h"

namespace xtrain {

// A small model on few stories, in every way that the settings change.
inline RunConfig small_run(const std::string& out_dir,
                           const std::vector<std::string>& settings = {}) {
  ConfigReader reader;
  reader.add_json(R"({
    "model": {"model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
              "max_position_embeddings": 32},
    "train": {"batch_size": 4, "max_steps": 8, "warmup_steps": 2, "eval_interval": 0,
              "eval_steps": 2, "checkpoint_interval": 0, "attention": "flash", "threads": 1,
              "num_samples": 0, "learning_rate": 0.003},
    "data": {"stories_count": 40}})",
                  "test");
  for (const std::string& setting : settings) reader.set(setting);
  reader.set("train.out_dir=" + out_dir);
  return resolve_run_config(reader);
}

struct Outcome {
  std::vector<double> losses;
  std::string weights;
  bool operator==(const Outcome&) const = default;
};

inline Outcome train(const Context& ctx, const RunConfig& run, int64_t steps,
                     const std::function<void(Trainer&)>& before_step = {}) {
  Replica alone;
  Trainer trainer(ctx, run, alone);
  Outcome outcome;
  for (int64_t i = 0; i < steps; ++i) {
    if (before_step) before_step(trainer);
    outcome.losses.push_back(trainer.train_step().loss);
  }
  outcome.weights = trainer.weights_checksum();
  return outcome;
}

// The loss and, by parameter, the gradients of the first step.
inline std::vector<std::vector<double>> first_gradients(const Context& ctx, const RunConfig& run) {
  Replica alone;
  Trainer trainer(ctx, run, alone);
  std::vector<std::vector<double>> values{{trainer.train_step().loss}};
  for (const Parameter& p : trainer.model().parameters().list()) {
    values.push_back(to_host<double>(ctx, cast(ctx, p.grad, Dtype::f64)));
  }
  return values;
}

}  // namespace xtrain
