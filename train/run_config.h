#pragma once
// Everything a run is told: the sections model, train and data of a config file.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config_field.h"
#include "core/context.h"
#include "model/config.h"
#include "model/exec.h"
#include "train/data/data_config.h"

namespace xtrain {

class ConfigReader;

// The learning rate after warm-up, which falls to min_lr_ratio * learning_rate: along half a cosine
// or a line until decay_steps; not at all; or (wsd: warm-up, stable, decay) along a line over the
// last decay_steps.
enum class LrSchedule : uint8_t { cosine, linear, constant, wsd };

enum class DeviceChoice : uint8_t { any, cpu, cuda };

struct TrainConfig {
  // One optimizer step sees batch_size * seq_len tokens in each micro-step.
  int64_t batch_size = 16;
  int64_t seq_len = 0;
  std::optional<int64_t> grad_accum_steps;  // see micro_steps()
  std::optional<int64_t> total_batch_size;  // tokens
  int64_t max_steps = 1000;

  double learning_rate = 6e-4;
  int64_t warmup_steps = 100;
  LrSchedule lr_schedule = LrSchedule::cosine;
  double min_lr_ratio = 0.1;
  std::optional<int64_t> decay_steps;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adam_eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;  // 0: off

  int64_t eval_interval = 250;         // 0: never
  int64_t eval_steps = 20;             // 0: all validation tokens
  int64_t checkpoint_interval = 1000;  // 0: only at the end
  int64_t keep_latest = 2;             // 0: all
  int64_t log_interval = 10;
  std::string out_dir = "out";
  std::string resume = "none";  // "none", "auto" or a path
  std::string init;             // folder of the model that a fresh run starts from; "": none

  uint64_t seed = 1337;
  Exec exec;
  bool recorded = true;
  DeviceChoice device = DeviceChoice::any;
  int64_t threads = 0;              // 0: all in the affinity mask
  std::optional<GemmBackend> gemm;  // none: tiled on a CPU, library on a GPU
  std::string gemm_choices;         // file of the library's algorithms; "": its first choice

  int64_t num_samples = 3;
  int64_t max_new_tokens = 200;
  double temperature = 0.8;      // 0: greedy
  std::optional<int64_t> top_k;  // none: all
  std::string prompt;

  bool operator==(const TrainConfig&) const = default;
};

struct RunConfig {
  ModelConfig model;
  TrainConfig train;
  DataConfig data;
};

// The sections with their keys, for reading, writing and tables. They point into `run`.
std::vector<ConfigSection> config_sections(RunConfig& run);

// What the reader's sources say: defaults that depend on other keys filled in, everything checked.
// Where train.init names a folder the section "model" is that of its model; keys that are given may
// repeat it, and change no more than dropout and initializer_range. Throws InputError naming the
// key. Opens no data and reserves no memory.
RunConfig resolve_run_config(const ConfigReader& reader);

// The resolved config of a run as JSON. Reading it back gives the same config.
std::string run_config_to_json(RunConfig run);

// Micro-steps of an optimizer step on each of `replicas`: total_batch_size (which must be a
// multiple of batch_size * seq_len * replicas) shared out, or else grad_accum_steps, or else 1.
int64_t micro_steps(const TrainConfig& train, int64_t replicas = 1);

}  // namespace xtrain
