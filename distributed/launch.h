#pragma once
// Starts the processes of a run on this host and watches over them: when one ends badly the others
// are stopped, and none outlives the launcher.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/environment.h"
#include "distributed/socket.h"

namespace xtrain {

struct LaunchPlan {
  int processes = 1;
  std::string program;                         // the path of what every process executes
  std::vector<std::string> command;            // its name and arguments
  std::vector<std::string> restart_arguments;  // added when the processes are started again
  MasterAddress master{"127.0.0.1", 0};        // port 0: a free one
  int max_restarts = 0;
  // From the first end to SIGTERM for the others, which see it themselves as a rule, and from there
  // to SIGKILL.
  std::chrono::milliseconds until_term{3000}, until_kill{6000};
};

// Runs the processes to their end. Each finds its place in the environment (see find_placement).
// SIGINT, SIGTERM and SIGHUP go on to all of them; after a second one they have `until_kill`. When
// processes fail, for another reason than bad input and without such a signal, all are started
// again up to max_restarts times. Returns the exit code: 0 when all processes returned 0, else
// 128 + n where signal n, not sent from here, ended one, else that of the first that failed; bad
// input that comes first stays the reason. `tell` gets what there is to say, a line at a time.
// Error when a process cannot be started.
int launch(const LaunchPlan& plan, const std::function<void(const std::string&)>& tell);

// Whether a launch() has started this process.
bool is_launched(const Environment& environment);

// Where the launcher already listens for rank 0. InputError when the environment names no such
// thing.
std::optional<Socket> inherited_listener(const Environment& environment);

}  // namespace xtrain
