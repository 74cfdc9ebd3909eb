// Trains a model in one process.

#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/dry_run.h"
#include "tools/program.h"
#include "tools/stop_signals.h"
#include "tools/train_context.h"
#include "tools/train_log.h"
#include "tools/train_options.h"
#include "train/trainer.h"

namespace xtrain {
namespace {

int train(int argc, char** argv) {
  CLI::App app("Trains a transformer on text.", "train");
  TrainOptions options(app, argv[0]);
  bool dry_run = false;
  app.add_flag("--dry-run", dry_run,
               "print the number of parameters, the tokens of a step and the memory that training "
               "takes, and stop");
  if (!parse_arguments(app, argc, argv) || options.print_page(std::cout)) return 0;
  const RunConfig run = options.resolve();
  make_file_faults_errors("train");
  if (dry_run) {
    print_run_size(std::cout, run);
    return 0;
  }
  Context ctx = train_context(run.train);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  print_start(std::cout, trainer, ctx);
  TrainLog log(std::cout, trainer);
  stop_on_signals();
  trainer.run(log, stop_requested());
  end_on_signals();
  print_end(std::cout, trainer, ctx, trainer.weights_checksum());
  if (!stop_requested()) print_samples(std::cout, trainer);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("train", [&] { return xtrain::train(argc, argv); });
}
