// Measures the collective operations of data-parallel training between processes that this program
// starts itself, or finds itself among: over NCCL on GPUs, over Gloo on CPUs.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/cores.h"
#include "core/error.h"
#include "core/parallel.h"
#include "distributed/affinity.h"
#include "distributed/backend.h"
#include "distributed/launch.h"
#include "distributed/rendezvous.h"
#include "tools/device.h"
#include "tools/measure.h"
#include "tools/program.h"

namespace xtrain {
namespace {

constexpr std::chrono::seconds kTimeout{60};

struct Options {
  std::string device = "auto", dtype = "f32";
  std::optional<int> processes;
  std::vector<double> sizes{0.0625, 1, 5, 25, 100};
  bool json = false;
};

bool parse_options(Options& o, int argc, char** argv) {
  CLI::App app("Times all-reduce, reduce-scatter and all-gather between processes.",
               "bench_collectives");
  app.option_defaults()->always_capture_default();
  add_device_option(app, o.device);
  app.add_option("--nproc", o.processes,
                 "processes to start on this host; without it, and not under torchrun, srun or "
                 "mpirun: one a GPU, or two")
      ->check(CLI::Range(2, 1024));
  app.add_option("--dtype", o.dtype, "f64, f32 or bf16");
  app.add_option("--mib", o.sizes, "MiB of the whole tensor")->check(CLI::Range(1e-4, 65536.0));
  app.add_flag("--json", o.json, "print one JSON object instead of a table");
  return parse_arguments(app, argc, argv);
}

struct Operation {
  const char* name;
  // Times that every byte of the tensor crosses a rank's link in each direction, in the limit of
  // many ranks: an all-reduce is a reduce-scatter and an all-gather.
  double crossings;
  std::function<void(const Context&, Communicator&, const Tensor& all, const Tensor& own)> run;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> known{
      {"all_reduce", 2.0,
       [](const Context& ctx, Communicator& c, const Tensor& all, const Tensor&) {
         c.all_reduce(ctx, all);
       }},
      {"reduce_scatter", 1.0,
       [](const Context& ctx, Communicator& c, const Tensor& all, const Tensor& own) {
         c.reduce_scatter(ctx, all, own);
       }},
      {"all_gather", 1.0,
       [](const Context& ctx, Communicator& c, const Tensor& all, const Tensor& own) {
         c.all_gather(ctx, own, all);
       }}};
  return known;
}

nlohmann::ordered_json measure(const Context& ctx, Communicator& communicator, const Options& o) {
  const Dtype dtype = dtype_from_name(o.dtype);
  const int ranks = communicator.size();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const double mib : o.sizes) {
    const int64_t part = std::max<int64_t>(
        1, static_cast<int64_t>(mib * (1 << 20)) / (ranks * static_cast<int64_t>(size_of(dtype))));
    const Tensor all = normal_tensor(ctx, {ranks * part}, dtype, 1);
    const Tensor own = all.slice(0, communicator.rank() * part, part);
    const double bytes = static_cast<double>(all.numel()) * static_cast<double>(size_of(dtype));
    for (const Operation& operation : operations()) {
      // Sums of sums leave the range of the dtype, at the same price.
      const double seconds = seconds_per_joint_call(ctx, [&] {
        operation.run(ctx, communicator, all, own);
        communicator.finish(ctx);
      });
      const double crossing = bytes * operation.crossings * (ranks - 1) / ranks;
      rows.push_back({{"operation", operation.name},
                      {"bytes", bytes},
                      {"us", seconds * 1e6},
                      {"bus_gb_per_s", crossing / seconds / 1e9}});
    }
  }
  const std::string failure = communicator.failure();
  check(failure.empty(), failure);
  return rows;
}

void print(const nlohmann::ordered_json& all, bool json) {
  if (json) {
    std::cout << all.dump(1) << "\n";
    return;
  }
  std::cout << all["ranks"] << " ranks over " << all["backend"].get<std::string>() << ", "
            << all["dtype"].get<std::string>() << "; bus: what crosses each link one way\n";
  for (const auto& row : all["rows"]) {
    std::printf("%-15s %10.3f MiB %12.1f us %8.2f GB/s bus\n",
                row["operation"].get<std::string>().c_str(), row["bytes"].get<double>() / (1 << 20),
                row["us"].get<double>(), row["bus_gb_per_s"].get<double>());
  }
}

Context context_of(const Options& o, const Placement& placement) {
  const int local = placement.local_rank.value_or(placement.rank);
  if (wants_gpu(o.device)) return cuda_context(cuda_device_count() == 1 ? 0 : local);
  // The ranks of other hosts have cores of their own; for those of this one a rank too many in the
  // count costs a measurement nothing.
  stay_on(share_of(allowed_cores(), local, placement.size));
  return cpu_context();
}

int measure_as_rank(const Options& o, const Placement& placement, Socket listener) {
  const Context ctx = context_of(o, placement);
  Rendezvous rendezvous({placement.rank, placement.size, placement.master, placement.token,
                         kTimeout, std::move(listener)});
  const Backend backend = backend_for(ctx);
  const auto communicator =
      connect(backend, ctx, {placement.rank, placement.size, rendezvous.own_address(), kTimeout},
              rendezvous);
  const nlohmann::ordered_json rows = measure(ctx, *communicator, o);
  rendezvous.leave();
  if (placement.rank == 0) {
    print({{"device", device_text(ctx.device)},
           {"backend", name_of(backend)},
           {"ranks", placement.size},
           {"dtype", o.dtype},
           {"rows", rows}},
          o.json);
  }
  return 0;
}

int start_processes(const Options& o, int argc, char** argv) {
  const bool gpu = wants_gpu(o.device);
  LaunchPlan plan;
  plan.processes = o.processes.value_or(gpu ? cuda_device_count() : 2);
  check_input(plan.processes > 1, "there must be two GPUs to measure between; this process sees ",
              plan.processes, "; --device cpu measures between processes");
  check_input(!gpu || plan.processes <= cuda_device_count(), "--nproc must be at most the ",
              cuda_device_count(), " GPUs of this host; got ", plan.processes);
  plan.program = "/proc/self/exe";
  plan.command.assign(argv, argv + argc);
  return launch(plan, [](const std::string& line) { print_error("bench_collectives", line); });
}

int bench_collectives(int argc, char** argv) {
  Options o;
  if (!parse_options(o, argc, argv)) return 0;
  check_input(is_floating(dtype_from_name(o.dtype)), "--dtype must be f64, f32 or bf16; got ",
              o.dtype);
  const Environment environment = environment_of_this_process();
  const std::optional<Placement> placement = find_placement(environment);
  if (!placement) return start_processes(o, argc, argv);
  return measure_as_rank(o, *placement, inherited_listener(environment).value_or(Socket()));
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("bench_collectives",
                             [&] { return xtrain::bench_collectives(argc, argv); });
}
