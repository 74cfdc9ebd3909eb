#pragma once
// One process of a data-parallel run.

#include <optional>

#include "distributed/environment.h"
#include "distributed/socket.h"
#include "tools/train_ddp_options.h"
#include "train/run_config.h"

namespace xtrain {

// Joins the run, trains, and returns the exit code. Rank 0 prints; when this rank fails all others
// are told, and when another one is lost this one fails, too, and names it: within 10 seconds of
// learning it, whatever it is busy with. `listener`: see RendezvousOptions.
int train_as_rank(const RunConfig& run, const TrainDdpOptions& options, const Placement& placement,
                  Socket listener);

}  // namespace xtrain
