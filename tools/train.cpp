// Trains a model in one process.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iomanip>
#include <iostream>

#include "core/dispatch.h"
#include "core/error.h"
#include "core/parallel.h"
#include "tools/program.h"
#include "tools/train_log.h"
#include "tools/train_options.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

std::atomic<bool> stop_requested{false};

// The first signal asks for a stop, a second one ends the program, except that every line that
// nobody reads brings another SIGPIPE.
void request_stop(int signal) {
  stop_requested = true;
  if (signal != SIGPIPE) std::signal(signal, SIG_DFL);
}

// Losing the terminal or the reader of the output ends a run with a checkpoint, too.
void handle_signals(void (*handler)(int)) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    // What the program was started to ignore, as by nohup, stays ignored.
    if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

// The system's answer to reading a mapped file that has been cut short since.
void report_cut_file(int) {
  constexpr char kMessage[] = "train: a data file was cut short while it was in use\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(1);
}

void make_file_faults_errors() {
  std::signal(SIGBUS, report_cut_file);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes then fails as others do
}

bool wants_gpu(DeviceChoice choice) {
  if (choice != DeviceChoice::cuda) return choice == DeviceChoice::any && cuda_device_count() > 0;
  check_input(kCudaBuilt, "train.device cuda: this build has no CUDA code; use auto or cpu");
  check_input(cuda_device_count() > 0,
              "train.device cuda: this process sees no GPU; use auto or cpu");
  return true;
}

void choose_gemm(const TrainConfig& config, Context& ctx) {
  if (!config.gemm) return;
  ctx.gemm = *config.gemm;
  const bool tensor_cores = ctx.gemm == GemmBackend::mma || ctx.gemm == GemmBackend::library_tf32;
  check_input(!tensor_cores || ctx.device.is_cuda(), "train.gemm ", name_of(ctx.gemm),
              ": runs on a GPU only; use auto, naive, tiled or library");
  check_input(ctx.gemm != GemmBackend::mma || config.exec.dtype == Dtype::bf16,
              "train.gemm mma: multiplies bf16 only; got train.dtype ", config.exec.dtype);
}

Context context_for(const TrainConfig& config) {
  const int threads = static_cast<int>(config.threads);
  const bool gpu = wants_gpu(config.device);
  Context ctx = gpu ? cuda_context(0, {}, threads) : cpu_context(threads);
  choose_gemm(config, ctx);
  if (!gpu) bind_threads(ctx.threads);
  return ctx;
}

std::string place_of(const Context& ctx) {
  std::string gpu;
  if (ctx.device.is_cuda()) gpu = text(", ", cuda_device_name(ctx.device.index));
  return text(ctx.device, gpu, " with ", ctx.threads, " threads");
}

void print_start(Trainer& trainer, const Context& ctx) {
  const RunConfig& run = trainer.config();
  std::cout << run_config_to_json(run) << "\n"
            << parameter_count(run.model) << " parameters, " << run.train.exec.dtype << " on "
            << place_of(ctx) << "\n"
            << "training data: " << trainer.data().train->reader() << ", "
            << trainer.data().train->size() << " tokens\n";
  if (!trainer.resumed_from().empty()) {
    std::cout << "continuing from " << trainer.resumed_from() << " at step " << trainer.state().step
              << "\n";
  }
  std::cout << std::flush;
}

void print_end(Trainer& trainer, const Context& ctx) {
  if (const auto& best = trainer.best_validation()) {
    std::cout << "best validation loss " << text(std::fixed, std::setprecision(4), best->loss)
              << " at step " << best->step << "\n";
  }
  std::cout << "weights " << trainer.weights_checksum() << ", peak memory "
            << ctx.allocator->peak_bytes() / (1 << 20) << " MiB\n";
  if (stop_requested) return;
  int number = 0;
  for (const std::string& text : trainer.samples()) {
    std::cout << "--- sample " << ++number << "\n" << text << "\n";
  }
  std::cout << std::flush;
}

int train(int argc, char** argv) {
  CLI::App app("Trains a transformer on text.", "train");
  TrainOptions options(app, argv[0]);
  if (!parse_arguments(app, argc, argv)) return 0;
  if (options.print_keys()) {
    std::cout << config_keys_page();
    return 0;
  }
  const RunConfig run = options.resolve();
  if (options.print_config()) {
    std::cout << run_config_to_json(run) << std::endl;
    return 0;
  }
  make_file_faults_errors();
  Context ctx = context_for(run.train);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  print_start(trainer, ctx);
  const Data& data = trainer.data();
  TrainLog log(run.train, data.validation ? data.validation->entropy_floor() : std::nullopt,
               trainer.state().step);
  handle_signals(request_stop);
  trainer.run(log, stop_requested);
  handle_signals(SIG_DFL);  // nothing is left to save
  print_end(trainer, ctx);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("train", [&] { return xtrain::train(argc, argv); });
}
