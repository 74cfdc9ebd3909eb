#pragma once
// Ranks for tests: threads of this process, or processes of their own.

#include <functional>
#include <string>
#include <vector>

#include "distributed/backend.h"
#include "distributed/communicator.h"

namespace xtrain {

// How a rank ended: what its body returned, or "error: " and the message of what it threw.
using RankResults = std::vector<std::string>;
using RankBody = std::function<std::string(const Context&, Communicator&)>;

// Runs the body in one thread a rank.
RankResults run_threads(int size, const RankBody& body);

// Of processes.
struct ProcessOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  bool share_memory = true;  // where the backend is gloo
};

// Runs the body in one process a rank, forked from this one; with NCCL on GPU `rank`, of which this
// process must know nothing yet. A process that a signal ends gives "signal N".
RankResults run_processes(Backend backend, int size, const RankBody& body,
                          const ProcessOptions& options = {});

// Every operation on every dtype and on sizes that do not divide evenly, compared with the sums and
// copies that must come out. Returns what is wrong, or nothing.
std::string check_collectives(const Context& ctx, Communicator& communicator);

}  // namespace xtrain
