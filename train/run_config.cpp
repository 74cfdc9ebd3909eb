#include "train/run_config.h"

#include <limits>

#include "core/config_reader.h"
#include "core/config_writer.h"
#include "core/error.h"
#include "model/model_folder.h"
#include "train/checkpoint.h"

namespace xtrain {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxBatch = int64_t{1} << 20;
constexpr int64_t kMaxSeqLen = int64_t{1} << 20;
// With it, batch * heads * seq_len * seq_len and batch * seq_len * vocab_size stay below 2^60.
constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 28;
constexpr int64_t kMaxStories = 4000000;  // about 2 GB of text, made in memory
constexpr int64_t kMaxSamples = 1000, kMaxSampleTokens = 1000000;
constexpr double kSmallestEps = 1e-30;  // far smaller ones are 0 in f32, and 0 / 0 not a number
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

using Fields = std::vector<ConfigField>;

void append(Fields& all, Fields more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

Fields batch_fields(TrainConfig& c) {
  return {
      config_field("batch_size", c.batch_size, from_to(1, kMaxBatch),
                   "sequences of a micro-step, on each replica"),
      config_field("seq_len", c.seq_len, from_to(1, kMaxSeqLen), "tokens of a sequence")
          .alias("block_size")
          .default_is("model.max_position_embeddings"),
      config_field("grad_accum_steps", c.grad_accum_steps, from_to(1, kMaxCount),
                   "micro-steps of an optimizer step, on each replica")
          .alias("gradient_accumulation_steps")
          .default_is("from total_batch_size, else 1"),
      config_field("total_batch_size", c.total_batch_size, from_to(1, kMaxInt64),
                   "tokens of an optimizer step over all replicas, instead of grad_accum_steps"),
      config_field("max_steps", c.max_steps, from_to(1, kMaxCount), "optimizer steps")
          .alias("max_iters"),
  };
}

Fields optimizer_fields(TrainConfig& c) {
  return {
      config_field("learning_rate", c.learning_rate, above(0).at_most(100), "peak learning rate"),
      config_field("warmup_steps", c.warmup_steps, from_to(0, kMaxCount),
                   "steps in which the learning rate rises from 0 to its peak")
          .alias("warmup_iters"),
      config_field("lr_schedule", c.lr_schedule,
                   {{LrSchedule::cosine, "cosine"},
                    {LrSchedule::linear, "linear"},
                    {LrSchedule::constant, "constant"},
                    {LrSchedule::wsd, "wsd"}},
                   "how the learning rate falls after warm-up; wsd holds it, then falls"),
      config_field("min_lr_ratio", c.min_lr_ratio, at_least(0).at_most(1),
                   "last learning rate as a share of the peak; min_lr gives it absolutely"),
      config_field("decay_steps", c.decay_steps, from_to(1, kMaxCount),
                   "cosine, linear: the step that reaches the last learning rate; wsd: how many "
                   "last steps fall")
          .alias("lr_decay_iters")
          .default_is("max_steps; wsd: a fifth of it"),
      config_field("beta1", c.beta1, at_least(0).below(1), "AdamW: memory of the mean gradient"),
      config_field("beta2", c.beta2, at_least(0).below(1), "AdamW: memory of the mean square"),
      config_field("adam_eps", c.adam_eps, at_least(kSmallestEps).at_most(1),
                   "AdamW: added to the root of the mean square"),
      config_field("weight_decay", c.weight_decay, at_least(0).at_most(100),
                   "AdamW: decay of matrices and embeddings, times the learning rate a step"),
      config_field("grad_clip", c.grad_clip, at_least(0),
                   "largest global norm of the gradient; 0: no limit"),
  };
}

Fields interval_fields(TrainConfig& c) {
  return {
      config_field("eval_interval", c.eval_interval, from_to(0, kMaxCount),
                   "steps between validations; 0: none"),
      config_field("eval_steps", c.eval_steps, from_to(0, kMaxCount),
                   "batches of a validation; 0: all validation tokens")
          .alias("eval_iters"),
      config_field("checkpoint_interval", c.checkpoint_interval, from_to(0, kMaxCount),
                   "steps between checkpoints; 0: only the last step"),
      config_field("keep_latest", c.keep_latest, from_to(0, kMaxCount),
                   "checkpoints that are kept; 0: all"),
      config_field("log_interval", c.log_interval, from_to(1, kMaxCount),
                   "steps between printed lines"),
      config_field("out_dir", c.out_dir, "folder of the run's config, metrics and checkpoints"),
      config_field("resume", c.resume,
                   "none: a fresh run; auto: from out_dir's newest checkpoint; or its path"),
      config_field("init", c.init,
                   "folder of the model that a fresh run starts from, Hugging Face's or a "
                   "checkpoint: its model section, weights and vocabulary; empty: random weights"),
  };
}

Fields machine_fields(TrainConfig& c) {
  return {
      config_field("seed", c.seed, from_to(0, kMaxInt64),
                   "of fresh weights, the data's order and dropout"),
      config_field("dtype", c.exec.dtype,
                   {{Dtype::f64, "f64"}, {Dtype::f32, "f32"}, {Dtype::bf16, "bf16"}},
                   "of activations; bf16 keeps f32 master weights"),
      config_field("attention", c.exec.attention,
                   {{AttentionKind::composed, "composed"}, {AttentionKind::flash, "flash"}},
                   "composed keeps the probabilities, flash streams over blocks of keys"),
      config_field("recompute", c.exec.recompute,
                   {{RecomputeLevel::none, "none"},
                    {RecomputeLevel::activations, "activations"},
                    {RecomputeLevel::attention, "attention"},
                    {RecomputeLevel::block, "block"}},
                   "what backward computes again instead of keeping it"),
      config_field("fused", c.exec.fused, "fat operations instead of several small ones"),
      config_field(
          "recorded", c.recorded,
          "on a GPU: start a whole step by one call, recorded once (a CUDA graph); in several "
          "processes forward and backward, unless gradients travel beside it (--overlap)"),
      config_field(
          "device", c.device,
          {{DeviceChoice::any, "auto"}, {DeviceChoice::cpu, "cpu"}, {DeviceChoice::cuda, "cuda"}},
          "auto: a GPU where there is one"),
      config_field("threads", c.threads, from_to(0, 1024),
                   "CPU threads; 0: one a core that the process may use"),
      config_field("gemm", c.gemm,
                   {{std::nullopt, "auto"},
                    {GemmBackend::naive, "naive"},
                    {GemmBackend::tiled, "tiled"},
                    {GemmBackend::mma, "mma"},
                    {GemmBackend::library, "library"},
                    {GemmBackend::library_tf32, "library_tf32"}},
                   "matrix product: the definition; blocked; on tensor cores, bf16 on a GPU only; "
                   "the system's library; the same, which may round f32 to TF32, on a GPU only; "
                   "auto: tiled on a CPU, library on a GPU"),
      config_field(
          "gemm_choices", c.gemm_choices,
          "file of the GPU library's fastest algorithm for each product: train measures and "
          "adds what it lacks, train_ddp only reads it; empty: the library's first choice"),
  };
}

Fields sample_fields(TrainConfig& c) {
  return {
      config_field("num_samples", c.num_samples, from_to(0, kMaxSamples),
                   "texts written after training"),
      config_field("max_new_tokens", c.max_new_tokens, from_to(1, kMaxSampleTokens),
                   "tokens of a text"),
      config_field("temperature", c.temperature, at_least(0).at_most(100),
                   "divides the logits; 0: always the likeliest token"),
      config_field("top_k", c.top_k, from_to(1, kMaxCount),
                   "draw among the k likeliest tokens; null: among all"),
      config_field("prompt", c.prompt, "how a text begins").alias("start"),
  };
}

Fields config_fields(TrainConfig& c) {
  Fields all = batch_fields(c);
  append(all, optimizer_fields(c));
  append(all, interval_fields(c));
  append(all, machine_fields(c));
  append(all, sample_fields(c));
  return all;
}

Fields config_fields(DataConfig& c) {
  return {
      config_field("source", c.source,
                   {{"auto", "auto"},
                    {"stories", "stories"},
                    {"text", "text"},
                    {"chars", "chars"},
                    {"tokens", "tokens"}},
                   "stories: built in; text: bytes, or a byte-pair vocabulary's tokens; chars: "
                   "UTF-8 characters; tokens: files of ids; "
                   "auto: found from the files, stories without any"),
      config_field("train_files", c.train_files, "paths or glob patterns, one stream"),
      config_field("val_files", c.val_files, "likewise for validation"),
      config_field("format", c.format,
                   {{"auto", "auto"}, {"raw_u16", "raw_u16"}, {"headered", "headered"}},
                   "of token files; auto: by magic number, else raw_u16"),
      config_field("val_fraction", c.val_fraction, at_least(-1).below(1),
                   "share of the stream's end held out when there are no val_files; -1: 0.1 for "
                   "text and stories, 0 for token files"),
      config_field("vocab_file", c.vocab_file, "a saved vocabulary instead of the files' own"),
      config_field("stories_seed", c.stories_seed, from_to(0, kMaxInt64), "of the stories"),
      config_field("stories_count", c.stories_count, from_to(1, kMaxStories),
                   "training stories, of about 500 bytes each"),
  };
}

void validate(const TrainConfig& c) {
  TrainConfig copy = c;
  check_ranges({"train", config_fields(copy)});
  check_input(c.batch_size <= kMaxMicroBatchTokens / c.seq_len,
              "train.batch_size * seq_len must be at most ", kMaxMicroBatchTokens,
              " tokens; got batch_size ", c.batch_size, " and seq_len ", c.seq_len);
  check_input(!c.total_batch_size || !c.grad_accum_steps,
              "train.total_batch_size and train.grad_accum_steps exclude each other; got ",
              c.total_batch_size.value_or(0), " and ", c.grad_accum_steps.value_or(0),
              "; set one of them to null");
  micro_steps(c);
  check_input(!c.out_dir.empty(), "train.out_dir must name a folder; got an empty string");
  check_input((c.out_dir + c.resume + c.init).find('\0') == std::string::npos,
              "train.out_dir, train.resume and train.init must be paths; got one with a zero byte");
  check_input(!c.resume.empty(), "train.resume must be none, auto or a path; got an empty string");
}

void validate(const RunConfig& run) {
  validate(run.model);
  validate(run.train);
  check_input(run.train.seq_len <= run.model.max_position_embeddings,
              "train.seq_len must be at most model.max_position_embeddings; got seq_len ",
              run.train.seq_len, " and max_position_embeddings ",
              run.model.max_position_embeddings);
  check_input(run.data.val_fraction == -1 || run.data.val_fraction >= 0,
              "data.val_fraction must be -1, or at least 0 and below 1; got ",
              run.data.val_fraction);
}

// nanoGPT's absolute form of min_lr_ratio.
void apply_min_lr(const ConfigReader& reader, double min_lr, TrainConfig& c) {
  check_input(!reader.has("train", "min_lr_ratio"),
              "train.min_lr and train.min_lr_ratio exclude each other; give one of them");
  check_input(min_lr <= c.learning_rate, "train.min_lr must be at most learning_rate; got min_lr ",
              min_lr, " and learning_rate ", c.learning_rate);
  c.min_lr_ratio = min_lr / c.learning_rate;
}

// Weights are of one model; only what training adds to it may be another.
void check_same_model(const RunConfig& run, ModelConfig of_folder) {
  ModelConfig model = run.model;
  of_folder.embd_pdrop = model.embd_pdrop;
  of_folder.resid_pdrop = model.resid_pdrop;
  of_folder.attn_pdrop = model.attn_pdrop;
  of_folder.initializer_range = model.initializer_range;
  const Fields asked = config_fields(model), there = config_fields(of_folder);
  for (size_t i = 0; i < asked.size(); ++i) {
    check_input(value_text(asked[i]) == value_text(there[i]), "model.", asked[i].key, " is ",
                value_text(asked[i]), "; the model in train.init ", run.train.init, " has ",
                value_text(there[i]), "; leave the key out");
  }
}

}  // namespace

std::vector<ConfigSection> config_sections(RunConfig& run) {
  return {{"model", config_fields(run.model)},
          {"train", config_fields(run.train)},
          {"data", config_fields(run.data)}};
}

RunConfig resolve_run_config(const ConfigReader& reader) {
  std::optional<double> min_lr;
  const auto read_into = [&](RunConfig& run, bool model_is_known) {
    std::vector<ConfigSection> sections = config_sections(run);
    for (ConfigField& field : sections[0].fields) {
      field.required = field.required && !model_is_known;
    }
    sections[1].fields.push_back(
        config_field("min_lr", min_lr, at_least(0), "last learning rate").read_only());
    reader.read(sections);
  };
  // Read twice: first to find the keys on which the defaults of others depend.
  RunConfig given;
  read_into(given, reader.has("train", "init"));
  const bool from_model = !given.train.init.empty();
  const std::string init = from_model ? model_path(given.train.init) : "";
  RunConfig run;
  run.model = from_model ? ModelFolder(init).config() : with_defaults(given.model);
  const ModelConfig of_folder = run.model;
  run.train.seq_len =
      from_model ? of_folder.max_position_embeddings : given.model.max_position_embeddings;
  read_into(run, from_model);
  run.train.init = init;  // a run's newest checkpoint may be another one later
  if (from_model) {
    if (run.model.vocab_size == 0) run.model.vocab_size = of_folder.vocab_size;
    check_same_model(run, of_folder);
  }
  if (min_lr) apply_min_lr(reader, *min_lr, run.train);
  validate(run);
  return run;
}

std::string run_config_to_json(RunConfig run) {
  return config_to_json(config_sections(run));
}

int64_t micro_steps(const TrainConfig& train, int64_t replicas) {
  if (!train.total_batch_size) return train.grad_accum_steps.value_or(1);
  const int64_t tokens = train.batch_size * train.seq_len * replicas;
  check_input(*train.total_batch_size % tokens == 0,
              "train.total_batch_size must be a multiple of batch_size * seq_len * replicas; got ",
              *train.total_batch_size, " and ", train.batch_size, " * ", train.seq_len, " * ",
              replicas);
  return *train.total_batch_size / tokens;
}

}  // namespace xtrain
