// Trains one model in many processes, which this program starts itself or finds itself among.

#include <CLI/CLI.hpp>
#include <iostream>

#include "core/cores.h"
#include "core/error.h"
#include "distributed/affinity.h"
#include "distributed/launch.h"
#include "tools/program.h"
#include "tools/stop_signals.h"
#include "tools/train_context.h"
#include "tools/train_ddp_options.h"
#include "tools/train_options.h"
#include "tools/training_rank.h"

namespace xtrain {
namespace {

// Who starts the processes: this program, where nobody has, or where it was told to.
bool starts_processes(const TrainDdpOptions& options, const Environment& environment) {
  if (is_launched(environment)) return false;
  const std::optional<Launcher> launcher = find_launcher(environment);
  if (!launcher) return true;
  // A shell inside of an allocation looks to SLURM like the first of its tasks.
  const bool shell = launcher->name == "srun" && environment.count("SLURM_STEP_ID") == 0;
  check_input(!options.nproc() || launcher->size == 1 || shell,
              "--nproc starts processes itself, but ", launcher->name, " has started ",
              launcher->size, "; leave --nproc out, or unset its variables");
  return options.nproc().has_value();
}

void print_step(const RunConfig& run, const TrainDdpOptions& options, int ranks, bool one_host) {
  const TrainConfig& t = run.train;
  const int64_t micro = micro_steps(t, ranks);
  const DataParallelOptions parallel = options.parallel(wants_gpu(t), one_host && ranks > 1);
  const Dtype summed_as = parallel.reduce_in_bf16      ? Dtype::bf16
                          : t.exec.dtype == Dtype::f64 ? Dtype::f64
                                                       : Dtype::f32;
  std::cout << "a step: " << ranks << " ranks x " << micro << " micro-steps x " << t.batch_size
            << " sequences x " << t.seq_len
            << " tokens = " << ranks * micro * t.batch_size * t.seq_len << " tokens\n"
            << "gradients: summed as " << summed_as << " in buckets of " << parallel.bucket_bytes
            << " bytes";
  if (ranks > 1) std::cout << " over " << name_of(options.backend(wants_gpu(t)));
  std::cout << (parallel.overlap ? "" : ", when backward has ended") << "\n"
            << "optimizer: "
            << (parallel.zero ? "shared out among the ranks" : "whole on each rank") << "\n";
}

void print_plan(const RunConfig& run, const TrainDdpOptions& options, const LaunchPlan& plan) {
  std::cout << "processes: " << plan.processes << " on " << host_name() << "\n";
  for (int rank = 0; rank < plan.processes; ++rank) {
    std::cout << "rank " << rank << ": cores "
              << core_list(share_of(allowed_cores(), rank, plan.processes));
    if (wants_gpu(run.train)) std::cout << ", GPU " << rank;
    std::cout << "\n";
  }
  std::cout << "meeting: " << plan.master.host << ", "
            << (plan.master.port == 0 ? "a free port" : text("port ", plan.master.port))
            << ", time-out " << static_cast<double>(options.timeout().count()) / 1000.0 << " s\n"
            << "restarts: at most " << plan.max_restarts << "\n";
  print_step(run, options, plan.processes, true);
}

void print_place(const RunConfig& run, const TrainDdpOptions& options, const Placement& placement) {
  const bool gpu = wants_gpu(run.train);  // which may refuse the device, before a word is said
  std::cout << "started by: " << placement.launcher << "\n"
            << "rank " << placement.rank << " of " << placement.size << " on " << host_name()
            << "\n"
            << "meeting: " << placement.master.host << ", port " << placement.master.port
            << ", time-out " << static_cast<double>(options.timeout().count()) / 1000.0 << " s\n";
  print_step(run, options, placement.size, placement.one_host);
  if (gpu && !placement.one_host) {
    std::cout << "should all ranks turn out to be on one host: as --nproc would say there\n";
  }
}

int default_processes(const RunConfig& run) {
  return wants_gpu(run.train) ? cuda_device_count() : 1;
}

int start_processes(const RunConfig& run, const TrainDdpOptions& options, int argc, char** argv) {
  LaunchPlan plan;
  plan.processes = options.nproc().value_or(default_processes(run));
  plan.program = "/proc/self/exe";
  plan.command.assign(argv, argv + argc);
  plan.restart_arguments = {"--resume", "auto"};
  if (options.master().host) plan.master.host = *options.master().host;
  if (options.master().port) plan.master.port = *options.master().port;
  plan.max_restarts = options.max_restarts();
  // InputError where the batch cannot be shared out, and where this build cannot do it.
  micro_steps(run.train, plan.processes);
  const bool gpu = wants_gpu(run.train);
  if (plan.processes > 1) options.backend(gpu);
  check_input(!gpu || plan.processes <= cuda_device_count(), "--nproc must be at most the ",
              cuda_device_count(), " GPUs of this host; got ", plan.processes);
  if (options.dry_run()) {
    print_plan(run, options, plan);
    return 0;
  }
  return launch(plan, [](const std::string& line) { print_error("train_ddp", line); });
}

int train_ddp(int argc, char** argv) {
  CLI::App app("Trains a transformer on text in many processes.", "train_ddp");
  TrainOptions train_options(app, argv[0]);
  const TrainDdpOptions options(app);
  if (!parse_arguments(app, argc, argv) || train_options.print_page(std::cout)) return 0;
  const RunConfig run = train_options.resolve();
  const Environment environment = environment_of_this_process();
  if (starts_processes(options, environment)) return start_processes(run, options, argc, argv);
  const Placement placement = *find_placement(environment, options.master());
  if (options.dry_run()) {
    print_place(run, options, placement);
    return 0;
  }
  make_file_faults_errors("train_ddp");
  return train_as_rank(run, options, placement, inherited_listener(environment).value_or(Socket()));
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("train_ddp", [&] { return xtrain::train_ddp(argc, argv); });
}
