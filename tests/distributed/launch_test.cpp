#include "distributed/launch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"

using namespace xtrain;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Processes that run a line of sh each, in the folder.
LaunchPlan shells(int processes, const TemporaryFolder& folder, const std::string& line) {
  LaunchPlan plan;
  plan.processes = processes;
  plan.program = "/bin/sh";
  plan.command = {"sh", "-c", "cd '" + folder.path.string() + "'; " + line, "sh"};
  plan.until_term = milliseconds(100);
  plan.until_kill = milliseconds(300);
  return plan;
}

struct Launched {
  int code;
  std::vector<std::string> told;
  milliseconds took;
};

Launched run(const LaunchPlan& plan) {
  Launched result{};
  const auto start = steady_clock::now();
  result.code = launch(plan, [&](const std::string& line) { result.told.push_back(line); });
  result.took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  return result;
}

// A process that has ended stays in the table until its parent, or init, has looked at it.
bool is_running(const std::string& pid) {
  std::ifstream file("/proc/" + std::to_string(std::stoi(pid)) + "/stat");
  std::string number, name, state;
  return (file >> number >> name >> state) && state != "Z" && state != "X";
}

void wait_for_file(const TemporaryFolder& folder, const std::string& name) {
  for (int i = 0; i < 2000 && folder.read(name).empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  REQUIRE_FALSE(folder.read(name).empty());
}

// A launcher in a process of its own, which signals may end.
pid_t start_launcher(const LaunchPlan& plan) {
  const pid_t launcher = fork();
  if (launcher == 0) _exit(launch(plan, [](const std::string&) {}));
  return launcher;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("every process finds its place, and nothing of a launcher above", "[distributed]") {
  const TemporaryFolder folder;
  setenv("SLURM_PROCID", "7", 1);
  setenv("MASTER_ADDR", "elsewhere", 1);
  setenv("XTRAIN_TEST_VALUE", "kept", 1);
  const Launched done = run(shells(3, folder, "env > env_$RANK"));
  unsetenv("SLURM_PROCID");
  unsetenv("MASTER_ADDR");
  unsetenv("XTRAIN_TEST_VALUE");
  CHECK(done.code == 0);
  CHECK(done.told.empty());
  for (int rank = 0; rank < 3; ++rank) {
    const std::string lines = "\n" + folder.read("env_" + std::to_string(rank));
    const auto says = [&](const std::string& line) {
      return lines.find("\n" + line) != std::string::npos;
    };
    CHECK(says("RANK=" + std::to_string(rank) + "\n"));
    CHECK(says("LOCAL_RANK=" + std::to_string(rank) + "\n"));
    CHECK(says("WORLD_SIZE=3\n"));
    CHECK(says("LOCAL_WORLD_SIZE=3\n"));
    CHECK(says("MASTER_ADDR=127.0.0.1\n"));
    CHECK(says("XTRAIN_TEST_VALUE=kept\n"));
    CHECK_FALSE(says("SLURM_PROCID"));
    CHECK(says("XTRAIN_LISTENER=") == (rank == 0));
    const size_t token = lines.find("\nXTRAIN_TOKEN=");
    REQUIRE(token != std::string::npos);
    CHECK(lines.find('\n', token + 1) - token == 14 + 32);
  }
}

TEST_CASE("the exit code is that of the first failure, and the others are stopped",
          "[distributed]") {
  const TemporaryFolder folder;
  const Launched done =
      run(shells(3, folder, "echo $$ > pid_$RANK; [ $RANK = 1 ] && exit 7; exec sleep 100"));
  CHECK(done.code == 7);
  CHECK(done.took < milliseconds(5000));
  for (const char* name : {"pid_0", "pid_1", "pid_2"}) CHECK_FALSE(is_running(folder.read(name)));
}

TEST_CASE("a process that does not stop when asked to is killed", "[distributed]") {
  const TemporaryFolder folder;
  const Launched done = run(
      shells(2, folder,
             "[ $RANK = 1 ] && exit 3; trap '' TERM; echo $$ > pid; while :; do sleep 1; done"));
  CHECK(done.code == 3);
  CHECK(done.took < milliseconds(5000));
  if (!folder.read("pid").empty()) CHECK_FALSE(is_running(folder.read("pid")));
}

TEST_CASE("a process that a signal ends is named", "[distributed]") {
  const TemporaryFolder folder;
  const Launched done = run(shells(2, folder, "[ $RANK = 1 ] && kill -9 $$; exec sleep 100"));
  CHECK(done.code == 128 + SIGKILL);
  CHECK(done.told == std::vector<std::string>{"rank 1 was ended by signal 9 (Killed)"});
}

TEST_CASE("a killed process is the reason, also when others fail before it has ended",
          "[distributed]") {
  const TemporaryFolder folder;
  for (const std::string victim : {"0", "1"}) {
    INFO("rank " << victim << " is killed");
    LaunchPlan plan =
        shells(2, folder, "[ $RANK = " + victim + " ] || exit 1; sleep 0.2; kill -9 $$");
    plan.until_term = milliseconds(10000);
    const Launched done = run(plan);
    CHECK(done.code == 128 + SIGKILL);
    CHECK(done.told ==
          std::vector<std::string>{"rank " + victim + " was ended by signal 9 (Killed)"});
    plan.command[2] = "[ $RANK = " + victim + " ] || exit 2; sleep 0.2; kill -9 $$";
    CHECK(run(plan).code == 2);  // bad input would be bad again
  }
}

TEST_CASE("a program that cannot be executed is a failure", "[distributed]") {
  LaunchPlan plan;
  plan.program = "/nowhere/program";
  plan.command = {"program"};
  CHECK(run(plan).code == 127);
}

TEST_CASE("all are started again with the arguments for that, so many times", "[distributed]") {
  const TemporaryFolder folder;
  LaunchPlan plan = shells(2, folder, "echo \"$*\" >> args_$RANK; [ $RANK = 1 ] && exit 5; exit 0");
  plan.restart_arguments = {"--resume", "auto"};
  plan.max_restarts = 2;
  const Launched done = run(plan);
  CHECK(done.code == 5);
  CHECK(folder.read("args_0") == "\n--resume auto\n--resume auto\n");
  CHECK(done.told == std::vector<std::string>{"starting all ranks again (1 of at most 2)",
                                              "starting all ranks again (2 of at most 2)"});
}

TEST_CASE("a second start that succeeds is a success, bad input is not tried again",
          "[distributed]") {
  const TemporaryFolder folder;
  LaunchPlan plan = shells(2, folder, "[ $RANK = 0 ] || [ -e mark ] || { touch mark; exit 1; }");
  plan.max_restarts = 5;
  const Launched done = run(plan);
  CHECK(done.code == 0);
  CHECK(done.told.size() == 1);
  plan.command[2] = "exit 2";
  const Launched refused = run(plan);
  CHECK(refused.code == 2);
  CHECK(refused.told.empty());
}

TEST_CASE("a signal to the launcher reaches every process once, and is no failure",
          "[distributed]") {
  const TemporaryFolder folder;
  LaunchPlan plan = shells(2, folder,
                           "trap 'echo got >> signals_$RANK; exit 0' INT; echo up > up_$RANK; "
                           "while :; do sleep 0.05; done");
  plan.max_restarts = 3;
  const pid_t launcher = start_launcher(plan);
  wait_for_file(folder, "up_0");
  wait_for_file(folder, "up_1");
  kill(launcher, SIGINT);
  CHECK(exit_code_of(launcher) == 0);
  CHECK(folder.read("signals_0") == "got\n");
  CHECK(folder.read("signals_1") == "got\n");
}

TEST_CASE("a process that ends by a signal passed on is not why a run has failed",
          "[distributed]") {
  const TemporaryFolder folder;
  LaunchPlan plan =
      shells(2, folder, "echo $$ > pid_$RANK; [ $RANK = 0 ] && exit 7; exec sleep 100");
  plan.until_term = milliseconds(10000);
  const pid_t launcher = start_launcher(plan);
  wait_for_file(folder, "pid_0");
  wait_for_file(folder, "pid_1");
  for (int i = 0; i < 1000 && is_running(folder.read("pid_0")); ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  kill(launcher, SIGTERM);
  CHECK(exit_code_of(launcher) == 7);
}

TEST_CASE("a second signal to the launcher ends what the first one did not", "[distributed]") {
  const TemporaryFolder folder;
  const LaunchPlan plan = shells(
      2, folder,
      "trap 'echo got > signal_$RANK' TERM; echo $$ > up_$RANK; while :; do sleep 0.05; done");
  const pid_t launcher = start_launcher(plan);
  wait_for_file(folder, "up_0");
  wait_for_file(folder, "up_1");
  kill(launcher, SIGTERM);
  wait_for_file(folder, "signal_0");
  kill(launcher, SIGTERM);
  CHECK(exit_code_of(launcher) == 128 + SIGKILL);
  CHECK_FALSE(is_running(folder.read("up_0")));
}

TEST_CASE("no process outlives a launcher that is killed", "[distributed]") {
  const TemporaryFolder folder;
  const pid_t launcher =
      start_launcher(shells(2, folder, "echo $$ > pid_$RANK; while :; do sleep 0.05; done"));
  wait_for_file(folder, "pid_0");
  wait_for_file(folder, "pid_1");
  kill(launcher, SIGKILL);
  CHECK(exit_code_of(launcher) == -SIGKILL);
  for (const char* name : {"pid_0", "pid_1"}) {
    for (int i = 0; i < 1000 && is_running(folder.read(name)); ++i) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    CHECK_FALSE(is_running(folder.read(name)));
  }
}

TEST_CASE("a port that is taken is an error before any process starts", "[distributed]") {
  const TemporaryFolder folder;
  const Socket taken = listen_on({"127.0.0.1", 0});
  LaunchPlan plan = shells(1, folder, "touch started");
  plan.master.port = port_of(taken);
  std::string message;
  try {
    run(plan);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("cannot listen on 127.0.0.1:" + std::to_string(plan.master.port)) !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path / "started"));
}

TEST_CASE("the inherited listener must be one", "[distributed]") {
  CHECK_FALSE(inherited_listener({}));
  for (const char* value : {"", "x", "0", "1", "999", "-1"}) {
    CHECK(rejection([&] {
            inherited_listener({{"XTRAIN_LISTENER", value}});
          }).find("XTRAIN_LISTENER is for train_ddp itself") != std::string::npos);
  }
  Socket listener = listen_on({"127.0.0.1", 0});
  const int port = port_of(listener);
  const auto inherited =
      inherited_listener({{"XTRAIN_LISTENER", std::to_string(listener.release())}});
  REQUIRE(inherited);
  CHECK(port_of(*inherited) == port);
}
