// Measures how fast tokens are decoded one after the other, against the rate of memory: all weights
// and all keys and values are read once a token, so nothing can be faster than a copy of them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/config_reader.h"
#include "core/copy.h"
#include "core/error.h"
#include "model/decoder.h"
#include "ops/arithmetic/arithmetic.h"
#include "tools/device.h"
#include "tools/measure.h"
#include "tools/program.h"
#include "train/generate/generator.h"
#include "train/run_config.h"

namespace xtrain {
namespace {

constexpr int64_t kRoom = 256;  // tokens that a measurement decodes at most

struct Options {
  std::string config, device = "auto", dtype = "bf16";
  std::vector<int64_t> contexts{128, 2048};
  int64_t rows = 1;
  bool json = false;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app("Times the decoding of tokens by a model of random weights.", "bench_decode");
  app.option_defaults()->always_capture_default();
  app.add_option("--config", o.config, "a config file, for its section \"model\"")->required();
  add_device_option(app, o.device);
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16");
  app.add_option("--contexts", o.contexts, "tokens that each text has already")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--rows", o.rows, "texts at once")->check(CLI::Range(1, 4096));
  app.add_flag("--json", o.json, "print one JSON object instead of a table");
  return parse_arguments(app, argc, argv);
}

ModelConfig read_config(const std::string& path) {
  ConfigReader reader;
  reader.add_file(path);
  return resolve_run_config(reader).model;
}

void fill_with_noise(const Context& ctx, TinyTransformer& model) {
  for (Parameter& p : model.parameters().list()) {
    const Tensor noise = normal_tensor(ctx, p.value.shape(), p.value.dtype(), 3);
    copy(ctx, scale(ctx, Var(noise), 0.02).value, p.value);
  }
}

// Of the weights that a token reads: of an embedding that is no head, a row.
int64_t weight_bytes(TinyTransformer& model) {
  int64_t bytes = 0;
  for (const Parameter& p : model.parameters().list()) {
    const bool table = p.kind == ParameterKind::embedding && p.name != "lm_head.weight" &&
                       !model.config().tie_word_embeddings;
    if (!table) bytes += p.value.nbytes();
  }
  return bytes;
}

// Of the keys and values of `context` tokens a row.
int64_t key_value_bytes(const KvCache& cache, const ModelConfig& config, int64_t context) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const LayerCache& layer = cache.layer(i);
    bytes += layer.keys.slice(1, 0, context).nbytes() + layer.values.slice(1, 0, context).nbytes();
  }
  return bytes;
}

nlohmann::ordered_json measure(const Context& ctx, TinyTransformer& model, const Options& o,
                               const Exec& exec, int64_t context, double copy_rate) {
  KvCache cache(ctx, model.config(), o.rows, context + kRoom, exec);
  Decoder decoder(ctx, model, cache, exec);
  const std::vector<std::vector<int32_t>> prompts(o.rows, std::vector<int32_t>(context, 7));
  model.prefill(ctx, cache, prompts, exec);
  const std::vector<int32_t> tokens(o.rows, 7);
  const double seconds = seconds_per_call(ctx, [&] { decoder.decode(tokens); });
  const auto read =
      static_cast<double>(weight_bytes(model) + key_value_bytes(cache, model.config(), context));
  return {{"context", context},    {"rows", o.rows},
          {"ms", seconds * 1e3},   {"tokens_per_s", o.rows / seconds},
          {"gb_read", read / 1e9}, {"of_copy_rate", read / copy_rate / seconds}};
}

// The whole program's loop, drawing on the host included.
double generated_tokens_per_second(const Context& ctx, TinyTransformer& model, const Options& o,
                                   const Exec& exec, int64_t context) {
  GenerateOptions options;
  options.sampling.temperature = 0.0;
  options.max_new_tokens = kRoom;
  const std::vector<TextStart> starts(o.rows, TextStart{std::vector<int32_t>(context, 7), 0});
  const GenerateTimes times = generate(ctx, model, exec, starts, options).times;
  return static_cast<double>(times.decoded_tokens) / times.decode_seconds;
}

int bench_decode(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  const Context ctx = context_on(o.device);
  Exec exec;
  exec.dtype = dtype_from_name(o.dtype);
  check_input(is_floating(exec.dtype), "--dtype must be f64, f32 or bf16; got ", o.dtype);
  exec.attention = AttentionKind::flash;
  TinyTransformer model(ctx, read_config(o.config), exec.dtype, ModelUse::inference);
  fill_with_noise(ctx, model);
  const int64_t copied = int64_t{1} << (ctx.device.is_cuda() ? 28 : 25);  // elements, past caches
  const double copy_rate = time_copy(ctx, {copied}, Dtype::bf16).rate();
  nlohmann::ordered_json all{{"device", text(ctx.device)},
                             {"dtype", o.dtype},
                             {"copy_gb_per_s", copy_rate / 1e9},
                             {"rows", nlohmann::ordered_json::array()}};
  for (const int64_t context : o.contexts) {
    auto row = measure(ctx, model, o, exec, context, copy_rate);
    row["generate_tokens_per_s"] = generated_tokens_per_second(ctx, model, o, exec, context);
    if (!o.json) {
      std::printf(
          "context %6ld, rows %3ld: %8.3f ms a token, %9.1f tokens/s, %5.1f %% of a copy's "
          "rate (%.0f GB/s); generate %9.1f tokens/s\n",
          context, o.rows, row["ms"].get<double>(), row["tokens_per_s"].get<double>(),
          100 * row["of_copy_rate"].get<double>(), copy_rate / 1e9,
          row["generate_tokens_per_s"].get<double>());
    }
    all["rows"].push_back(row);
  }
  if (o.json) std::cout << all.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_decode", [&] { return xtrain::bench_decode(argc, argv); });
}
