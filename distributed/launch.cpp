#include "distributed/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace xtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLaunched = "XTRAIN_LAUNCHED";
constexpr const char* kListener = "XTRAIN_LISTENER";
constexpr int kBadInput = 2;

std::string random_token() {
  unsigned char bytes[16];
  check(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "the system gives no random numbers");
  std::string token;
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) token += "0123456789abcdef"[digit];
  }
  return token;
}

// What execve takes.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Signals that have come and wait to be dealt with: the end of a pipe. Any thread of the program
// may be interrupted by one, also threads that a library has started.
int caught_signals = -1;

void note_signal(int signal) {
  const int error = errno;
  const char byte = static_cast<char>(signal);
  (void)!write(caught_signals, &byte, 1);
  errno = error;
}

// While it lives, the launcher hears of signals instead of being ended by them. One that it was
// started to ignore, as by nohup, stays ignored.
class Signals {
 public:
  Signals() {
    int ends[2];
    check(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "a pipe could not be opened");
    reader_ = Socket(ends[0]);
    writer_ = Socket(ends[1]);
    caught_signals = ends[1];
    for (size_t i = 0; i < kCaught.size(); ++i) {
      struct sigaction action {};
      action.sa_handler = note_signal;
      action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
      sigaction(kCaught[i], &action, &before_[i]);
      const bool ignored = kCaught[i] != SIGCHLD && before_[i].sa_handler == SIG_IGN;
      if (ignored) sigaction(kCaught[i], &before_[i], nullptr);
    }
  }
  ~Signals() {
    for (size_t i = 0; i < kCaught.size(); ++i) sigaction(kCaught[i], &before_[i], nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The next signal, or 0 when none comes in time.
  int wait(std::chrono::milliseconds time) const {
    char byte = 0;
    if (!wait_readable(reader_, time)) return 0;
    return read(reader_.descriptor(), &byte, 1) == 1 ? byte : 0;
  }

  // In a process that has been forked: what signals do to any program.
  static void reset() {
    for (const int s : kCaught) {
      struct sigaction action {};
      sigaction(s, nullptr, &action);
      if (action.sa_handler == note_signal) signal(s, SIG_DFL);
    }
  }

 private:
  static constexpr std::array kCaught{SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  Socket reader_, writer_;  // of the pipe
  std::array<struct sigaction, kCaught.size()> before_;
};

// Holds signals back, so that none reaches the launcher's handlers in a process just forked.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~HeldSignals() { release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  void release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The processes of one start.
class Processes {
 public:
  Processes(const LaunchPlan& plan, const Signals& signals, bool again)
      : plan_(plan), signals_(signals) {
    const Socket listener = listen_on(plan.master);
    MasterAddress master = plan.master;
    master.port = port_of(listener);
    const std::string token = random_token();
    for (int rank = 0; rank < plan.processes; ++rank) {
      pids_.push_back(start(environment_of(rank, master, token, listener), listener, rank, again));
    }
  }
  ~Processes() {
    send(SIGKILL);
    for (const pid_t pid : pids_) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Returns when all have ended.
  void watch(const std::function<void(const std::string&)>& tell) {
    while (running() > 0) {
      const int signal = signals_.wait(next_wait());
      if (signal == SIGCHLD || signal == 0) {
        collect(tell);
      } else {
        pass_on(signal);
      }
      stop_the_rest();
    }
  }

  int exit_code() const { return exit_code_; }
  bool stopped() const { return stops_ > 0; }

 private:
  std::vector<std::string> environment_of(int rank, const MasterAddress& master,
                                          const std::string& token, const Socket& listener) const {
    std::vector<std::string> entries;
    for (const auto& [name, value] : environment_of_this_process()) {
      if (!is_placement_variable(name)) entries.push_back(name + "=" + value);
    }
    const auto set = [&](const std::string& name, const std::string& value) {
      entries.push_back(name + "=" + value);
    };
    const std::string ranks = std::to_string(plan_.processes), own = std::to_string(rank);
    set("RANK", own);
    set("WORLD_SIZE", ranks);
    set("LOCAL_RANK", own);
    set("LOCAL_WORLD_SIZE", ranks);
    set("MASTER_ADDR", master.host);
    set("MASTER_PORT", std::to_string(master.port));
    set("XTRAIN_TOKEN", token);
    set(kLaunched, "1");
    if (rank == 0) set(kListener, std::to_string(listener.descriptor()));
    return entries;
  }

  pid_t start(std::vector<std::string> environment, const Socket& listener, int rank, bool again) {
    std::vector<std::string> command = plan_.command;
    if (again) {
      command.insert(command.end(), plan_.restart_arguments.begin(), plan_.restart_arguments.end());
    }
    const std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
    const pid_t launcher = getpid();
    const HeldSignals held;
    const pid_t pid = fork();
    check(pid >= 0, "rank ", rank, " could not be started: ", std::strerror(errno));
    if (pid != 0) return pid;
    // Between fork and exec only calls that need no lock.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it has ended before that took effect
    setpgid(0, 0);  // Ctrl-C reaches the launcher alone, which passes it on once
    if (rank == 0) fcntl(listener.descriptor(), F_SETFD, 0);
    Signals::reset();
    held.release();
    execve(plan_.program.c_str(), arguments.data(), variables.data());
    _exit(127);
  }

  int64_t running() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid > 0; });
  }

  void send(int signal) {
    signalled_ = true;
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, signal);
    }
  }

  void pass_on(int signal) {
    send(signal);
    if (++stops_ == 2) kill_at_ = Clock::now() + plan_.until_kill;
  }

  void collect(const std::function<void(const std::string&)>& tell) {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] <= 0 || waitpid(pids_[rank], &status, WNOHANG) == 0) continue;
      pids_[rank] = 0;
      const bool killed = WIFSIGNALED(status);
      const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (!is_cause(code, killed)) continue;
      if (exit_code_ == 0) {
        term_at_ = Clock::now() + plan_.until_term;
        kill_at_ = *term_at_ + plan_.until_kill;
      }
      exit_code_ = code;
      killed_ = killed;
      if (killed) {
        tell(text("rank ", rank, " was ended by signal ", WTERMSIG(status), " (",
                  strsignal(WTERMSIG(status)), ")"));
      }
    }
  }

  // Whether an end is the reason why the run fails, as far as is known: the first failure, or a
  // signal that is not the launcher's own. A killed process drops its connections before it has
  // ended, so the ranks that fail without it may have ended before it.
  bool is_cause(int code, bool killed) const {
    if (code == 0) return false;
    if (exit_code_ == 0) return true;
    return killed && !killed_ && !signalled_ && exit_code_ != kBadInput;
  }

  void stop_the_rest() {
    const auto now = Clock::now();
    if (term_at_ && now >= *term_at_) {
      term_at_.reset();
      send(SIGTERM);
    }
    if (kill_at_ && now >= *kill_at_) send(SIGKILL);
  }

  std::chrono::milliseconds next_wait() const {
    auto until = Clock::now() + std::chrono::seconds(1);
    for (const auto& limit : {term_at_, kill_at_}) {
      if (limit) until = std::min(until, *limit);
    }
    return std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  }

  const LaunchPlan& plan_;
  const Signals& signals_;
  std::vector<pid_t> pids_;  // 0: has ended
  int exit_code_ = 0;
  bool killed_ = false;     // exit_code_ is that of a process that a signal has ended
  bool signalled_ = false;  // by the launcher: later ends may be its doing
  int stops_ = 0;           // signals passed on
  std::optional<Clock::time_point> term_at_, kill_at_;
};

}  // namespace

int launch(const LaunchPlan& plan, const std::function<void(const std::string&)>& tell) {
  const Signals signals;
  for (int restarts = 0;; ++restarts) {
    Processes processes(plan, signals, restarts > 0);
    processes.watch(tell);
    const int code = processes.exit_code();
    const bool again = code != 0 && code != kBadInput && !processes.stopped();
    if (!again || restarts == plan.max_restarts) return code;
    tell(text("starting all ranks again (", restarts + 1, " of at most ", plan.max_restarts, ")"));
  }
}

bool is_launched(const Environment& environment) {
  return environment.count(kLaunched) > 0;
}

std::optional<Socket> inherited_listener(const Environment& environment) {
  const auto found = environment.find(kListener);
  if (found == environment.end()) return std::nullopt;
  int descriptor = -1, listens = 0;
  socklen_t size = sizeof(listens);
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), descriptor);
  const bool known = descriptor > 2 &&
                     getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                     listens != 0;
  check_input(known, kListener, " is for train_ddp itself and must name a socket; got \"",
              found->second, "\"; unset it");
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return Socket(descriptor);
}

}  // namespace xtrain
