#include "tools/dry_run.h"

#include <cstdio>
#include <ostream>

#include "tools/random_tokens.h"
#include "tools/train_context.h"
#include "train/trainer.h"

namespace xtrain {

RunSize size_of_run(RunConfig run, Device device) {
  forget_files(run.train);
  const Context ctx = sizing_context(device);
  Replica alone;
  Trainer trainer(ctx, run, random_tokens(run), alone);
  RunSize size;
  size.parameters = parameter_count(run.model);
  size.tokens_per_step = micro_steps(run.train) * run.train.batch_size * run.train.seq_len;
  size.state_bytes = ctx.allocator->current_bytes();
  // The first step asks for memory that recorded steps keep; the second shows what comes on top.
  for (int step = 0; step < 2; ++step) trainer.train_step();
  size.peak_bytes = ctx.allocator->peak_bytes();
  return size;
}

void print_run_size(std::ostream& out, RunConfig run) {
  if (run.model.vocab_size == 0) {
    run.model.vocab_size = open_data(run.data, 0).vocabulary->size();
  }
  const bool on_gpu = run.train.device == DeviceChoice::cuda || wants_gpu(run.train);
  const Device device{on_gpu ? DeviceType::cuda : DeviceType::cpu};
  const RunSize size = size_of_run(run, device);
  const auto mib = [](int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; };
  out << size.parameters << " parameters\n"
      << size.tokens_per_step << " tokens a step, " << micro_steps(run.train) << " times "
      << run.train.batch_size << " sequences of " << run.train.seq_len << "\n"
      << "peak memory " << mib(size.peak_bytes) << " MiB on " << (on_gpu ? "a GPU" : "the CPU")
      << " in " << run.train.exec.dtype << ", of which weights, gradients and optimizer take "
      << mib(size.state_bytes) << " MiB\n"
      << std::flush;
}

}  // namespace xtrain
