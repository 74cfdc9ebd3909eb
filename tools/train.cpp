// Trains a model in one process.

#include <CLI/CLI.hpp>
#include <iostream>

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
  if (!parse_arguments(app, argc, argv) || options.print_page(std::cout)) return 0;
  const RunConfig run = options.resolve();
  make_file_faults_errors("train");
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
