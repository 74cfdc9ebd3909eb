// Measures training as train does it, on random tokens: tokens a second, the share of the machine's
// peak that its products reach, memory and, on a GPU, where the time goes.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/config_reader.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"
#include "tools/device.h"
#include "tools/dry_run.h"
#include "tools/kernel_times.h"
#include "tools/measure.h"
#include "tools/program.h"
#include "tools/random_tokens.h"
#include "tools/step_work.h"
#include "tools/train_context.h"
#include "tools/train_options.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

// A flag that stands for a key of the section "train".
struct KeyFlag {
  const char *flag, *key, *help;
  std::string value;
};

struct Options {
  std::string config = "tiny", batch;
  int64_t steps = 20, warm_up = 5, accumulate = 1;
  std::vector<KeyFlag> keys = {
      {"--device", "device", "auto, cpu or cuda", ""},
      {"--dtype", "dtype", "f64, f32 or bf16", ""},
      {"--attention", "attention", "composed or flash", ""},
      {"--recompute", "recompute", "none, activations, attention or block", ""},
      {"--recorded", "recorded", "true or false: a whole step by one call, on a GPU", ""},
      {"--gemm-choices", "gemm_choices", "file of the GPU library's fastest algorithms", ""},
      {"--threads", "threads", "CPU threads, 0 for all cores", ""}};
  std::vector<std::string> settings;
  bool kernels = true, json = false;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app("Times training steps on random tokens.", "bench_train");
  app.option_defaults()->always_capture_default();
  app.add_option("--preset,--config", o.config,
                 "gpt2_124m, gpt2_350m, qwen2.5_0.5b, qwen3_0.6b, small8, tiny or another "
                 "installed config, or a JSON file");
  app.add_option("--batch", o.batch,
                 "sequences x tokens of a micro-step, such as 8x1024; empty: "
                 "the config's");
  app.add_option("--accumulate", o.accumulate, "micro-steps of a step")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "steps that are timed")->check(CLI::PositiveNumber);
  app.add_option("--warm-up", o.warm_up, "steps before them")->check(CLI::NonNegativeNumber);
  for (KeyFlag& flag : o.keys) app.add_option(flag.flag, flag.value, flag.help);
  app.add_option("--set", o.settings, "section.key=value, any key of the config")
      ->take_all()
      ->expected(1);
  app.add_flag("!--no-kernels", o.kernels, "leave out the times of kernels");
  app.add_flag("--json", o.json, "print one JSON object instead of text");
  return parse_arguments(app, argc, argv);
}

RunConfig run_config(const Options& o, const char* program) {
  ConfigReader reader;
  reader.add_file(find_config(o.config, config_folders(program)));
  reader.set("train.total_batch_size=null");
  reader.set("train", "grad_accum_steps", std::to_string(o.accumulate), "--accumulate");
  reader.set("train", "max_steps", "1000000", "bench_train");
  if (!o.batch.empty()) {
    const size_t x = o.batch.find('x');
    check_input(x != std::string::npos, "--batch must be sequences x tokens, such as 8x1024; got ",
                o.batch);
    reader.set("train", "batch_size", o.batch.substr(0, x), "--batch");
    reader.set("train", "seq_len", o.batch.substr(x + 1), "--batch");
  }
  for (const KeyFlag& flag : o.keys) {
    if (!flag.value.empty()) reader.set("train", flag.key, flag.value, flag.flag);
  }
  for (const std::string& setting : o.settings) reader.set(setting);
  RunConfig run = resolve_run_config(reader);
  forget_files(run.train);
  return run;
}

// --- measuring -----------------------------------------------------------------------------------

class StepTimes final : public TrainObserver {
 public:
  void on_step(const StepReport& report) override {
    ms_.push_back(report.step_ms);
    loss_ = report.loss;
  }
  // The q-th part of the steps took less.
  double ms(double q) {
    std::sort(ms_.begin(), ms_.end());
    return ms_[static_cast<size_t>(q * static_cast<double>(ms_.size() - 1))];
  }
  double loss() const { return loss_; }  // of the last step

 private:
  std::vector<double> ms_;
  double loss_ = 0.0;
};

struct Training {
  double ms = 0.0, fastest_ms = 0.0, slowest_ms = 0.0;
  double loss = 0.0;
  int64_t peak_bytes = 0;
};

Training measure_training(const Context& ctx, const RunConfig& run, const Options& o) {
  Replica alone;
  Trainer trainer(ctx, run, random_tokens(run), alone);
  StepTimes warm_up, times;
  trainer.take_steps(o.warm_up, warm_up);
  trainer.take_steps(o.steps, times);
  return {times.ms(0.5), times.ms(0.0), times.ms(1.0), times.loss(), ctx.allocator->peak_bytes()};
}

// What the machine reaches at best, found by the two things it does in training.
struct Ceilings {
  int64_t size = 0;           // of the square product
  double operations = 0.0;    // a second
  double copied_bytes = 0.0;  // a second, read and written
  double seconds(const Work& work) const {
    return std::max(work.operations / operations, work.bytes / copied_bytes);
  }
};

Ceilings measure_ceilings(Context ctx, const RunConfig& run) {
  const bool on_gpu = ctx.device.is_cuda();
  const Dtype dtype = run.train.exec.dtype;
  Ceilings c;
  c.size = on_gpu ? 8192 : 1024;
  {
    const Tensor a = normal_tensor(ctx, {c.size, c.size}, dtype, 1);
    const Tensor b = normal_tensor(ctx, {c.size, c.size}, dtype, 2);
    const Tensor product = empty(ctx, {c.size, c.size}, dtype);
    double seconds = seconds_per_call(ctx, [&] { gemm(ctx, a, b, product); });
    if (!on_gpu) {  // where either our own product or the library's may be the faster
      ctx.gemm = ctx.gemm == GemmBackend::library ? GemmBackend::tiled : GemmBackend::library;
      seconds = std::min(seconds, seconds_per_call(ctx, [&] { gemm(ctx, a, b, product); }));
    }
    c.operations = 2.0 * static_cast<double>(c.size * c.size * c.size) / seconds;
  }
  const int64_t bytes = int64_t{on_gpu ? 1024 : 64} << 20;
  c.copied_bytes = time_copy(ctx, {bytes / size_of(dtype)}, dtype).rate();
  return c;
}

// Seconds of a step by KernelKind, and kernels that it runs.
struct KernelShares {
  std::array<double, kKernelKinds> seconds{};
  double runs = 0.0;
  std::vector<std::pair<std::string, double>> others;  // seconds of those of the last kind
};

// Of a training of its own, all of whose recorded steps are recorded while kernels are noted.
KernelShares measure_kernels(const Context& ctx, const RunConfig& run) {
  constexpr int64_t kSteps = 4, kWarmUp = 3;
  note_kernels();
  Replica alone;
  Trainer trainer(ctx, run, random_tokens(run), alone);
  StepTimes times;
  trainer.take_steps(kWarmUp, times);
  ctx.queue->synchronize();
  noted_kernels();
  trainer.take_steps(kSteps, times);
  ctx.queue->synchronize();
  KernelShares shares;
  for (const KernelTime& kernel : noted_kernels()) {
    const KernelKind kind = kind_of_kernel(kernel.name);
    const double seconds = kernel.seconds / kSteps;
    shares.seconds[static_cast<int>(kind)] += seconds;
    shares.runs += static_cast<double>(kernel.runs) / kSteps;
    if (kind == KernelKind::other) shares.others.emplace_back(kernel.name, seconds);
  }
  std::sort(shares.others.begin(), shares.others.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

// --- reporting -----------------------------------------------------------------------------------

Json kernels_json(const KernelShares& shares, const StepWork& work, const Ceilings& ceilings,
                  double step_seconds) {
  Json kinds = Json::array();
  double sum = 0.0;
  for (int i = 0; i < kKernelKinds; ++i) {
    sum += shares.seconds[i];
    kinds.push_back({{"kind", name_of(static_cast<KernelKind>(i))},
                     {"ms", 1e3 * shares.seconds[i]},
                     {"floor_ms", 1e3 * ceilings.seconds(work[i])}});
  }
  Json others = Json::array();
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < std::min(kMost, shares.others.size()); ++i) {
    others.push_back(
        {{"kernel", shares.others[i].first.substr(0, 100)}, {"ms", 1e3 * shares.others[i].second}});
  }
  return {{"kinds", kinds},
          {"sum_ms", 1e3 * sum},
          {"idle_ms", 1e3 * (step_seconds - sum)},
          {"runs", shares.runs},
          {"longest_others", others}};
}

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

Json report(const Options& o, const Context& ctx, const RunConfig& run, const Training& training,
            const Ceilings& ceilings) {
  const TrainConfig& t = run.train;
  const double tokens = static_cast<double>(micro_steps(t) * t.batch_size * t.seq_len);
  const double tokens_per_s = 1e3 * tokens / training.ms;
  return {{"program", "xtrain"},
          {"model", o.config},
          {"device", device_text(ctx.device)},
          {"threads", ctx.threads},
          {"parameters", parameter_count(run.model)},
          {"batch", t.batch_size},
          {"seq_len", t.seq_len},
          {"accumulate", micro_steps(t)},
          {"dtype", text(t.exec.dtype)},
          {"attention", name_of(t.exec.attention)},
          {"recorded", t.recorded && ctx.queue->records()},
          {"steps", o.steps},
          {"ms", training.ms},
          {"fastest_ms", training.fastest_ms},
          {"slowest_ms", training.slowest_ms},
          {"tokens_per_s", tokens_per_s},
          {"peak_mib", mib(training.peak_bytes)},
          {"predicted_mib", mib(size_of_run(run, ctx.device).peak_bytes)},
          {"loss", training.loss},
          {"product_weights", product_weights(run.model)},
          {"operations_per_token", operations_per_token(run)},
          {"peak_product", ceilings.size},
          {"peak_tflops", 1e-12 * ceilings.operations},
          {"copy_gb_per_s", 1e-9 * ceilings.copied_bytes},
          {"mfu", operations_per_token(run) * tokens_per_s / ceilings.operations}};
}

void print_kernels(const Json& kernels, double step_ms) {
  std::printf("\n%-20s %9s %9s %9s %9s\n", "kernels", "ms", "floor ms", "of floor", "of step");
  const auto row = [&](const std::string& name, double ms, double floor) {
    std::printf("%-20s %9.3f", name.c_str(), ms);
    if (floor > 0.0) {
      std::printf(" %9.3f %9.2f", floor, ms / floor);
    } else {
      std::printf(" %9s %9s", "-", "-");
    }
    std::printf(" %8.1f%%\n", 100.0 * ms / step_ms);
  };
  double floors = 0.0;
  for (const Json& kind : kernels["kinds"]) {
    floors += kind["floor_ms"].get<double>();
    row(kind["kind"], kind["ms"], kind["floor_ms"]);
  }
  row("all kernels", kernels["sum_ms"], floors);
  row("idle", kernels["idle_ms"], 0.0);
  std::printf("%.0f kernels a step; of the others the longest:\n", kernels["runs"].get<double>());
  for (const Json& other : kernels["longest_others"]) {
    std::printf("%9.3f ms %s\n", other["ms"].get<double>(),
                other["kernel"].get<std::string>().c_str());
  }
}

void print_report(const Json& r, Dtype dtype) {
  const auto number = [&](const char* key) { return r[key].get<double>(); };
  const auto string = [&](const char* key) { return r[key].get<std::string>(); };
  std::printf("%s: %.0f parameters, %s, %s attention%s, on %s\n", string("model").c_str(),
              number("parameters"), text(dtype).c_str(), string("attention").c_str(),
              r["recorded"].get<bool>() ? ", recorded" : "", string("device").c_str());
  std::printf("a step      %.0f x %.0f x %.0f tokens\n", number("accumulate"), number("batch"),
              number("seq_len"));
  std::printf("time        %.3f ms a step, median of %.0f; %.3f to %.3f\n", number("ms"),
              number("steps"), number("fastest_ms"), number("slowest_ms"));
  std::printf("speed       %.0f tokens/s\n", number("tokens_per_s"));
  std::printf("memory      %.1f MiB at the most, by a dry run %.1f\n", number("peak_mib"),
              number("predicted_mib"));
  std::printf("MFU         %.3f = operations a token x tokens/s / peak\n", number("mfu"));
  std::printf(
      "operations  %.4g a token: 6 x %.0f weights of products, and causal attention,\n"
      "            visible half, 2 T a layer and query column forward, 5 T backward\n",
      number("operations_per_token"), number("product_weights"));
  std::printf("peak        %.4g TFLOP/s, a product of %.0f cubed in %s on random numbers\n",
              number("peak_tflops"), number("peak_product"), text(dtype).c_str());
  std::printf("copy        %.0f GB/s, read and written\n", number("copy_gb_per_s"));
  if (r.contains("kernels")) {
    print_kernels(r["kernels"], number("ms"));
  } else if (r.contains("no_kernels")) {
    std::printf("no times of kernels; %s\n", string("no_kernels").c_str());
  }
}

void add_kernels(const Context& ctx, const RunConfig& run, const Ceilings& ceilings,
                 const Training& training, Json& result) {
  try {
    const KernelShares shares = measure_kernels(ctx, run);
    check(shares.runs > 0.0, "kernel times: CUPTI must note kernels; it has noted none");
    result["kernels"] = kernels_json(shares, work_of_step(run), ceilings, 1e-3 * training.ms);
  } catch (const Error& e) {  // what was measured before stands
    result["no_kernels"] = e.what();
  }
}

int bench_train(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  const RunConfig run = run_config(o, argv[0]);
  const Context ctx = train_context(run.train);
  const Training training = measure_training(ctx, run, o);
  const Ceilings ceilings = measure_ceilings(ctx, run);
  Json result = report(o, ctx, run, training, ceilings);
  if (o.kernels && ctx.device.is_cuda()) add_kernels(ctx, run, ceilings, training, result);
  if (o.json) {
    std::cout << result.dump(1) << "\n";
  } else {
    print_report(result, run.train.exec.dtype);
  }
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_train", [&] { return xtrain::bench_train(argc, argv); });
}
