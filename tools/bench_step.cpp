// Measures a training step, forward, backward, clipping and AdamW, with composed and with flash
// attention: time and peak memory, without recompute and with that of the activations.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "model/tiny_transformer.h"
#include "tools/device.h"
#include "tools/measure.h"
#include "tools/program.h"
#include "train/adamw/adamw.h"
#include "train/clip.h"

namespace xtrain {
namespace {

struct Options {
  std::string device = "auto", dtype = "bf16";
  int64_t layers = 8, width = 768, head_dim = 64, intermediate = 3072, vocab = 8192;
  std::vector<std::string> batches{"8x1024", "2x2048"};
  bool json = false;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app("Times a training step and measures its memory, composed against flash attention.",
               "bench_step");
  app.option_defaults()->always_capture_default();
  add_device_option(app, o.device);
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16");
  app.add_option("--layers", o.layers);
  app.add_option("--width", o.width);
  app.add_option("--head-dim", o.head_dim);
  app.add_option("--intermediate", o.intermediate);
  app.add_option("--vocab", o.vocab);
  app.add_option("--batches", o.batches, "sequences x tokens, such as 8x1024");
  app.add_flag("--json", o.json, "print one JSON object instead of a table");
  return parse_arguments(app, argc, argv);
}

struct BatchSize {
  int64_t rows = 0, length = 0;
};

BatchSize batch_size_from(const std::string& name) {
  BatchSize size;
  char end = 0;
  const int read = std::sscanf(name.c_str(), "%ldx%ld%c", &size.rows, &size.length, &end);
  check_input(read == 2 && size.rows > 0 && size.length > 0,
              "a batch must be given as sequences x tokens, such as 8x1024; got ", name);
  return size;
}

ModelConfig model_config(const Options& o, int64_t length) {
  ModelConfig config;
  config.model_type = ModelType::qwen3;
  config.vocab_size = o.vocab;
  config.hidden_size = o.width;
  config.num_hidden_layers = o.layers;
  config.num_attention_heads = o.width / o.head_dim;
  config = with_defaults(config);
  config.head_dim = o.head_dim;
  config.intermediate_size = o.intermediate;
  config.max_position_embeddings = length;
  config.tie_word_embeddings = true;
  return config;
}

TokenBatch random_tokens(const Context& ctx, BatchSize size, int64_t vocab) {
  const RandomStream stream = random_stream(5, 0, 0);
  std::vector<int32_t> ids[2];
  for (uint64_t which = 0; which < 2; ++which) {
    for (int64_t i = 0; i < size.rows * size.length; ++i) {
      ids[which].push_back(static_cast<int32_t>(random_below(stream, which, i, vocab)));
    }
  }
  return token_batch(ctx, ids[0], ids[1], size.rows);
}

// A model in training on one batch.
class Training {
 public:
  Training(const Context& ctx, const ModelConfig& config, BatchSize size, const Exec& exec)
      : ctx_(ctx),
        exec_(exec),
        model_(ctx, config, exec.dtype),
        optimizer_(ctx, model_.parameters(), AdamWOptions{},
                   {ArenaRange{0, model_.parameters().arena_size()}}),
        batch_(random_tokens(ctx, size, config.vocab_size)) {
    optimizer_.initialize(ctx, 1);
    const auto numbers = optimizer_.step_scalars(1, 1e-4);
    scalars_ = from_host(ctx, std::span<const double>(numbers), {3});
  }

  void step() {
    ParameterSet& parameters = model_.parameters();
    parameters.clear_grads();
    Tape tape(ctx_);
    const Loss loss = model_.loss(ctx_, &tape, batch_, exec_);
    tape.backward(loss.sum);
    constexpr double kMaxNorm = 1.0;
    const Tensor squares = sum_of_squares(ctx_, parameters.grads());
    optimizer_.step(ctx_, scalars_, grad_scale(ctx_, squares, loss.count, kMaxNorm));
  }

 private:
  const Context& ctx_;
  Exec exec_;
  TinyTransformer model_;
  AdamW optimizer_;
  TokenBatch batch_;
  Tensor scalars_;
};

struct Cost {
  double seconds;
  int64_t peak_bytes;
};

Cost measure(const Context& ctx, const Options& o, BatchSize size, RecomputeLevel recompute,
             AttentionKind attention) {
  Exec exec;
  exec.recompute = recompute;
  exec.dtype = dtype_from_name(o.dtype);
  exec.attention = attention;
  ctx.allocator->reset_peak();
  const int64_t before = ctx.allocator->current_bytes();
  Training training(ctx, model_config(o, size.length), size, exec);
  const double seconds = seconds_per_call(ctx, [&] { training.step(); });
  return {seconds, ctx.allocator->peak_bytes() - before};
}

nlohmann::ordered_json as_json(const std::string& batch, const char* recompute,
                               const Cost& composed, const Cost& flash) {
  const auto cost = [](const Cost& c) {
    return nlohmann::ordered_json{{"ms", c.seconds * 1e3}, {"peak_mib", c.peak_bytes / 1048576.0}};
  };
  return {{"batch", batch},
          {"recompute", recompute},
          {"composed", cost(composed)},
          {"flash", cost(flash)},
          {"speedup", composed.seconds / flash.seconds},
          {"memory_saved",
           1.0 - static_cast<double>(flash.peak_bytes) / static_cast<double>(composed.peak_bytes)}};
}

void print_row(const nlohmann::ordered_json& row) {
  const auto& composed = row["composed"];
  const auto& flash = row["flash"];
  std::printf(
      "%-8s %-11s composed %8.2f ms %8.1f MiB   flash %8.2f ms %8.1f MiB   %.2f times as fast, "
      "%.1f %% less memory\n",
      row["batch"].get<std::string>().c_str(), row["recompute"].get<std::string>().c_str(),
      composed["ms"].get<double>(), composed["peak_mib"].get<double>(), flash["ms"].get<double>(),
      flash["peak_mib"].get<double>(), row["speedup"].get<double>(),
      100 * row["memory_saved"].get<double>());
  std::fflush(stdout);
}

int bench_step(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  const Context ctx = context_on(o.device);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::string& batch : o.batches) {
    const BatchSize size = batch_size_from(batch);
    for (const auto& [level, name] : {std::pair{RecomputeLevel::none, "none"},
                                      std::pair{RecomputeLevel::activations, "activations"}}) {
      const Cost composed = measure(ctx, o, size, level, AttentionKind::composed);
      const Cost flash = measure(ctx, o, size, level, AttentionKind::flash);
      rows.push_back(as_json(batch, name, composed, flash));
      if (!o.json) print_row(rows.back());
    }
  }
  if (o.json) {
    const nlohmann::ordered_json all{{"device", text(ctx.device)}, {"dtype", o.dtype},
                                     {"layers", o.layers},         {"width", o.width},
                                     {"vocab", o.vocab},           {"rows", rows}};
    std::cout << all.dump(1) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_step", [&] { return xtrain::bench_step(argc, argv); });
}
