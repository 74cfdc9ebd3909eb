#include "tools/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

namespace xtrain {
namespace {

std::atomic<bool> requested{false};
const char* program_name = "";

// Every line that nobody reads brings another SIGPIPE, which must not end the program before it has
// saved.
void request_stop(int signal) {
  requested = true;
  if (signal != SIGPIPE) std::signal(signal, SIG_DFL);
}

void handle_signals(void (*handler)(int)) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    // What the program was started to ignore, as by nohup, stays ignored.
    if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

// The system's answer to reading a mapped file that has been cut short since.
void report_cut_file(int) {
  constexpr char kMessage[] = ": a data file was cut short while it was in use\n";
  (void)!write(STDERR_FILENO, program_name, std::strlen(program_name));
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(1);
}

}  // namespace

const std::atomic<bool>& stop_requested() {
  return requested;
}

void stop_on_signals() {
  handle_signals(request_stop);
}

void end_on_signals() {
  handle_signals(SIG_DFL);
}

void make_file_faults_errors(const char* program) {
  program_name = program;
  std::signal(SIGBUS, report_cut_file);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace xtrain
