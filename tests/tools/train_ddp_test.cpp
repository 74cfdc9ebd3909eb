// train_ddp as its users see it: starts, faults, restarts.

#include "distributed/backend.h"

#if XT_GLOO_BUILT

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/socket.h"
#include "support/catch.h"
#include "support/tolerance.h"
#include "tools/program_runs.h"

using namespace xtrain;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kGrace = std::chrono::seconds(15);  // after the time-out

const std::string kSmall = "--config small.json --out-dir run ";
// Runs until something ends it.
const std::string kLong =
    "--config small.json --out-dir run --max-steps 1000000 --set train.lr_schedule=constant "
    "--set train.eval_interval=0 --set train.checkpoint_interval=20 ";

// A program that does not outlive its test.
class Running {
 public:
  explicit Running(pid_t pid) : pid_(pid) {}
  ~Running() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  // Returns its exit code when it has ended.
  int end() { return wait_for(std::exchange(pid_, 0)); }

 private:
  pid_t pid_;
};

void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(holds());
}

void wait_for_step(const Workplace& place, int step) {
  const std::string mark = "\"step\":" + std::to_string(step) + ",";
  wait_until([&] { return place.read("run/metrics.jsonl").find(mark) != std::string::npos; });
}

std::string whole_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The processes that a launcher has started, by rank.
std::map<int, pid_t> ranks_of(pid_t launcher) {
  std::map<int, pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    std::istringstream stat(whole_file(entry.path() / "stat"));
    std::string pid, name, state;
    pid_t parent = 0;
    if (!(stat >> pid >> name >> state >> parent) || parent != launcher || state == "Z") continue;
    const std::string variables = '\0' + whole_file(entry.path() / "environ");
    const size_t at = variables.find(std::string("\0RANK=", 6));
    if (at != std::string::npos) ranks[std::stoi(variables.substr(at + 6))] = std::stoi(pid);
  }
  return ranks;
}

bool is_running(pid_t pid) {
  std::istringstream stat(whole_file("/proc/" + std::to_string(pid) + "/stat"));
  std::string number, name, state;
  return (stat >> number >> name >> state) && state != "Z" && state != "X";
}

// A rank started by hand, as a launcher would. Its output goes to NAME.out and NAME.err.
pid_t start_rank(const Workplace& place, const std::string& name, const std::string& variables,
                 const std::string& arguments) {
  const std::string line = "cd '" + place.path.string() + "' && exec env " + variables + " '" +
                           XT_PROGRAM_DIR "/train_ddp' " + arguments + " >" + name + ".out 2>" +
                           name + ".err";
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

int free_port() {
  return port_of(listen_on({"127.0.0.1", 0}));
}

std::string place_of(int rank, int size, int port) {
  return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port);
}

std::vector<double> losses(const Workplace& place, const std::string& run) {
  std::istringstream lines(place.read(run + "/metrics.jsonl"));
  std::vector<double> values;
  const std::string key = "\"loss\":";
  for (std::string line; std::getline(lines, line);) {
    values.push_back(std::stod(line.substr(line.find(key) + key.size())));
  }
  return values;
}

void check_equal_losses(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(std::fabs(found[i] - expected[i]) <= twin_tolerance(Dtype::f64) * std::fabs(expected[i]));
  }
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("two processes train as one does on their batches together", "[tools]") {
  const Workplace place;
  const std::string f64 = "--config small.json --dtype f64 ";
  const Finished two = place.run("train_ddp", f64 + "--nproc 2 --out-dir two --log-dir logs");
  CHECK(two.err == "");
  REQUIRE(two.code == 0);
  CHECK(count_of(two.out, "step 30/30") == 1);  // rank 0 alone prints
  CHECK(count_of(two.out, "--- sample 1\n") == 1);
  CHECK(place.read("logs/rank_0.log").find("rank 0 of 2") != std::string::npos);
  CHECK(place.read("logs/rank_1.log").find("step 30/30") != std::string::npos);
  CHECK(weights_line(place.read("logs/rank_1.log")) == weights_line(two.out));
  CHECK(place.run("train", f64 + "--batch-size 4 --out-dir one").code == 0);
  check_equal_losses(losses(place, "two"), losses(place, "one"));
  const Finished zero = place.run("train_ddp", f64 + "--nproc 2 --zero --out-dir zero");
  CHECK(zero.code == 0);
  CHECK(weights_line(zero.out) == weights_line(two.out));
  CHECK(weights_line(two.out).size() == 16);
}

TEST_CASE("a run goes on on any number of processes", "[tools]") {
  const Workplace place;
  const std::string common =
      "--config small.json --dtype f64 --set train.total_batch_size=64 --batch-size 1 "
      "--set train.checkpoint_interval=0 --set train.lr_schedule=constant --out-dir ";
  REQUIRE(place.run("train_ddp", common + "whole --nproc 1 --max-steps 15").code == 0);
  const std::string parts = common + "parts --resume auto ";
  const auto runs = [&](const std::string& arguments) {
    const Finished run = place.run("train_ddp", parts + arguments);
    INFO(run.err);
    CHECK(run.code == 0);
    return run;
  };
  runs("--nproc 2 --zero --max-steps 5");
  CHECK(runs("--nproc 1 --max-steps 10").out.find("step_00000005 at step 5") != std::string::npos);
  CHECK(runs("--nproc 4 --max-steps 15").out.find("step_00000010 at step 10") != std::string::npos);
  check_equal_losses(losses(place, "parts"), losses(place, "whole"));
}

TEST_CASE("a dry run prints the plan and starts nothing", "[tools]") {
  const Workplace place;
  const Finished plan = place.run(
      "train_ddp",
      kSmall + "--nproc 2 --dry-run --zero --reduce bf16 --no-overlap --timeout 7 --master-port 9");
  CHECK(plan.code == 0);
  CHECK(plan.err == "");
  for (const char* line :
       {"processes: 2 on ", "\nrank 0: cores ", "\nrank 1: cores ",
        "\nmeeting: 127.0.0.1, port 9, time-out 7 s\n",
        "\na step: 2 ranks x 1 micro-steps x 2 sequences x 16 tokens = 64 tokens\n",
        "\ngradients: summed as bf16 in buckets of 1048576 bytes over gloo, when backward has "
        "ended\n",
        "\noptimizer: shared out among the ranks\n"}) {
    INFO(line);
    CHECK(plan.out.find(line) != std::string::npos);
  }
  const pid_t rank = start_rank(place, "placed", place_of(1, 4, 1234), kSmall + "--dry-run");
  CHECK(wait_for(rank) == 0);
  CHECK(place.read("placed.out").find("started by: RANK and WORLD_SIZE\nrank 1 of 4 on ") == 0);
  CHECK_FALSE(fs::exists(place.path / "run"));
}

TEST_CASE("processes on CPUs train plainly and beside backward unless told otherwise", "[tools]") {
  const Workplace place;
  const std::string behind = ", when backward has ended", whole = "whole on each rank",
                    shared = "shared out among the ranks";
  const struct {
    const char* arguments;
    std::string when, optimizer;
  } cases[] = {
      {"", "", whole},
      {"--zero", "", shared},
      {"--no-zero", "", whole},
      {"--overlap", "", whole},
      {"--no-overlap", behind, whole},
      {"--zero --no-overlap", behind, shared},
      {"--no-zero --zero", "", shared},  // the last one counts
      {"--zero --no-zero --overlap --no-overlap", behind, whole},
  };
  for (const auto& c : cases) {
    INFO("train_ddp " << c.arguments);
    const std::string end = "gradients: summed as f32 in buckets of 1048576 bytes over gloo" +
                            c.when + "\noptimizer: " + c.optimizer + "\n";
    const Finished plan =
        place.run("train_ddp", kSmall + "--device cpu --nproc 2 --dry-run " + c.arguments);
    CHECK(plan.code == 0);
    CHECK(plan.out.find(end) != std::string::npos);
    const std::string variables = place_of(1, 4, 1234);
    REQUIRE(wait_for(start_rank(place, "placed", variables,
                                kSmall + "--device cpu --dry-run " + c.arguments)) == 0);
    CHECK(place.read("placed.out").find(end) != std::string::npos);
  }
}

TEST_CASE("bad options of train_ddp are one line and exit code 2", "[tools]") {
  const Workplace place;
  const struct {
    const char* variables;
    const char* arguments;
    const char* message;
  } cases[] = {
      {"", "--nproc 0", "--nproc"},
      {"", "--nproc two", "--nproc"},
      {"", "--nproc 2 --backend mpi", "--backend"},
      {"", "--nproc 2 --backend nccl", "--backend nccl: nccl is for GPUs"},
      {"", "--nproc 2 --timeout 0", "--timeout"},
      {"", "--nproc 2 --bucket-mb 0", "--bucket-mb"},
      {"", "--nproc 2 --timeout nan", "--timeout"},
      {"", "--nproc 2 --bucket-mb nan", "--bucket-mb"},
      {"", "--nproc 1 --bucket-mb nan", "--bucket-mb"},
      {"", "--nproc 2 --bucket-mb 1x", "--bucket-mb"},
      {"", "--nproc 2 --zero=maybe", "--zero"},
      {"", "--nproc 2 --no-overlap=99999999999999999999", "value of a flag must be"},
      {"", "--nproc 2 --reduce f16", "--reduce"},
      {"", "--nproc 2 --nccl-max-ctas 0", "--nccl-max-ctas"},
      {"", "--nproc 2 --master-port 65536", "--master-port"},
      {"", "--nproc 3 --set train.total_batch_size=64", "total_batch_size"},
      {"", "--nproc 2 --set train.nothing=1", "nothing"},
      {"RANK=0", "", "RANK and WORLD_SIZE must be set together"},
      {"RANK=2 WORLD_SIZE=2", "", "RANK must be less than WORLD_SIZE=2"},
      {"RANK=0 WORLD_SIZE=2", "", "--master-addr must name the host of rank 0"},
      {"RANK=0 WORLD_SIZE=2", "--nproc 2", "--nproc starts processes itself"},
      {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0", "--nproc 2", "srun has started 4"},
  };
  for (const auto& c : cases) {
    INFO(c.variables << " train_ddp " << c.arguments);
    CHECK(wait_for(start_rank(place, "bad", c.variables, kSmall + c.arguments)) == 2);
    const std::string err = place.read("bad.err");
    INFO(err);
    CHECK(err.find(c.message) != std::string::npos);
    CHECK(count_of(err, "\n") == 1);
    CHECK_FALSE(fs::exists(place.path / "run"));
  }
}

TEST_CASE("what all ranks find wrong is said once", "[tools]") {
  const Workplace place;
  place.write("short.txt", "too short");
  const Finished run = place.run("train_ddp", kSmall + "--nproc 2 --data short.txt");
  INFO(run.err);
  CHECK(run.code == 2);
  CHECK(count_of(run.err, "short.txt") >= 1);
  CHECK(count_of(run.err, "\n") <= 2);
}

TEST_CASE("ranks started by hand meet as under torchrun, at the port after the agent's",
          "[tools]") {
  const Workplace place;
  const Socket agent = listen_on({"127.0.0.1", 0});
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(start_rank(place, "rank_" + std::to_string(rank),
                               place_of(rank, 2, port_of(agent)) + " TORCHELASTIC_RUN_ID=7 " +
                                   "LOCAL_RANK=" + std::to_string(rank),
                               kSmall));
  }
  for (const pid_t rank : ranks) CHECK(wait_for(rank) == 0);
  CHECK(place.read("rank_0.out").find("step 30/30") != std::string::npos);
  CHECK(place.read("rank_1.out") == "");
  CHECK(place.read("rank_1.err") == "");
}

TEST_CASE("ranks that were given other orders are refused, all of them", "[tools]") {
  const Workplace place;
  const int port = free_port();
  const pid_t rank_0 = start_rank(place, "rank_0", place_of(0, 2, port), kSmall);
  const pid_t rank_1 = start_rank(place, "rank_1", place_of(1, 2, port), kSmall + "--seed 3");
  CHECK(wait_for(rank_0) == 2);
  CHECK(wait_for(rank_1) == 2);
  CHECK((place.read("rank_0.err") + place.read("rank_1.err"))
            .find("all ranks must have the same config; that of rank 1 is not that of rank 0") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(place.path / "run"));
}

// --- faults --------------------------------------------------------------------------------------

TEST_CASE("a rank that never starts is named in time", "[tools]") {
  const Workplace place;
  const auto start = Clock::now();
  CHECK(wait_for(
            start_rank(place, "rank_0", place_of(0, 2, free_port()), kSmall + "--timeout 1")) == 1);
  CHECK(place.read("rank_0.err") ==
        "train_ddp: rank 0 cannot join the run: rank 1 of 2 did not arrive within 1 s\n");
  const int port = free_port();
  CHECK(wait_for(start_rank(place, "rank_1", place_of(1, 2, port), kSmall + "--timeout 1")) == 1);
  CHECK(place.read("rank_1.err").find("rank 0 must listen on 127.0.0.1:" + std::to_string(port)) !=
        std::string::npos);
  CHECK(Clock::now() - start < std::chrono::seconds(2) + kGrace);
}

TEST_CASE("two processes of one rank end with its name", "[tools]") {
  const Workplace place;
  const std::string arguments = kSmall + "--timeout 2";
  int port = free_port();
  std::vector<pid_t> twins;
  for (const char* name : {"a", "b"}) {
    twins.push_back(start_rank(place, name, place_of(0, 2, port), arguments));
  }
  for (const pid_t twin : twins) CHECK(wait_for(twin) == 1);
  const std::string zeros = place.read("a.err") + place.read("b.err");
  INFO(zeros);
  CHECK(zeros.find("rank 0 cannot listen on 127.0.0.1:") != std::string::npos);
  CHECK(zeros.find("rank 1 of 2 did not arrive") != std::string::npos);
  port = free_port();
  const pid_t rank_0 = start_rank(place, "rank_0", place_of(0, 3, port), arguments);
  twins.clear();
  for (const char* name : {"a", "b"}) {
    twins.push_back(start_rank(place, name, place_of(1, 3, port), arguments));
  }
  CHECK(wait_for(rank_0) == 1);
  for (const pid_t twin : twins) CHECK(wait_for(twin) == 1);
  const std::string ones = place.read("a.err") + place.read("b.err");
  INFO(ones);
  CHECK(ones.find("two processes were given this rank") != std::string::npos);
  CHECK(place.read("rank_0.err").find("rank 2 of 3 did not arrive") != std::string::npos);
}

TEST_CASE("when a rank is killed the others name it, end in time, and leave nothing", "[tools]") {
  for (const int victim : {0, 1}) {
    const Workplace place;
    const int port = free_port();
    Running launcher(place.start(
        "train_ddp",
        kLong + "--nproc 3 --timeout 5 --log-dir logs --master-port " + std::to_string(port)));
    wait_for_step(place, 25);
    const std::map<int, pid_t> ranks = ranks_of(launcher.pid());
    REQUIRE(ranks.size() == 3);
    const auto killed = Clock::now();
    kill(ranks.at(victim), SIGKILL);
    CHECK(launcher.end() == 128 + SIGKILL);
    CHECK(Clock::now() - killed < std::chrono::seconds(5) + kGrace);
    const std::string name = "rank " + std::to_string(victim);
    for (int rank = 0; rank < 3; ++rank) {
      CHECK_FALSE(is_running(ranks.at(rank)));
      const std::string log = place.read("logs/rank_" + std::to_string(rank) + ".log");
      INFO(log);
      CHECK((log.find(name + " was lost: connection closed") != std::string::npos) ==
            (rank != victim));
    }
    const std::string err = place.read("err.txt");
    INFO(err);
    CHECK(err.find("train_ddp: " + name + " was ended by signal 9 (Killed)\n") !=
          std::string::npos);
    CHECK(count_of(err, "train_ddp: " + name + " was lost: connection closed\n") == 2);
    CHECK_NOTHROW(listen_on({"127.0.0.1", port}));  // nobody holds it any more
    CHECK(fs::exists(place.path / "run/checkpoints/step_00000020/manifest.json"));
  }
}

TEST_CASE("a rank that is stopped is named in time", "[tools]") {
  const Workplace place;
  Running launcher(place.start("train_ddp", kLong + "--nproc 2 --timeout 1"));
  wait_for_step(place, 5);
  const std::map<int, pid_t> ranks = ranks_of(launcher.pid());
  REQUIRE(ranks.size() == 2);
  const auto stopped = Clock::now();
  kill(ranks.at(1), SIGSTOP);
  CHECK(launcher.end() == 1);
  CHECK(Clock::now() - stopped < std::chrono::seconds(1) + kGrace);
  const std::string err = place.read("err.txt");
  INFO(err);
  CHECK(err.find("train_ddp: rank 1 was lost: no sign of life for 1 s\n") != std::string::npos);
  for (const auto& [rank, pid] : ranks) CHECK_FALSE(is_running(pid));
}

TEST_CASE("a rank that is busy with something else names the lost one, too", "[tools]") {
  const Workplace place;
  // Nobody reads what it prints, so at some time rank 0 hangs in a write.
  const std::string pipe_path = (place.path / "out.txt").string();
  REQUIRE(mkfifo(pipe_path.c_str(), 0600) == 0);
  const Socket reader(open(pipe_path.c_str(), O_RDWR));
  Running launcher(place.start("train_ddp", kLong + "--nproc 2 --set train.log_interval=1"));
  std::string before, now;
  wait_until([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    before = std::exchange(now, place.read("run/metrics.jsonl"));
    return !now.empty() && now == before;
  });
  const std::map<int, pid_t> ranks = ranks_of(launcher.pid());
  REQUIRE(ranks.size() == 2);
  const auto killed = Clock::now();
  kill(ranks.at(1), SIGKILL);
  CHECK(launcher.end() == 128 + SIGKILL);
  CHECK(Clock::now() - killed < kGrace);
  CHECK_FALSE(is_running(ranks.at(0)));
  CHECK(count_of(place.read("err.txt"), "train_ddp: rank 1 was lost: connection closed\n") == 1);
}

TEST_CASE("a failure of one rank ends all with its reason", "[tools]") {
  const Workplace place;
  const Finished run = place.shell(
      "(ulimit -f 20; \"${train}_ddp\" --config small.json --set model.hidden_size=64 --nproc 2 "
      "--out-dir run >out.txt)");
  INFO(run.err);
  CHECK(run.code == 1);
  CHECK(run.err.find("train_ddp: rank 0: ") != std::string::npos);
  CHECK(run.err.find("train_ddp: rank 0 was lost: ") != std::string::npos);
  CHECK(count_of(run.err, "File too large") == 2);
  CHECK(fs::is_empty(place.path / "run/checkpoints"));
}

TEST_CASE("a signal to the launcher or to one rank ends all with one checkpoint", "[tools]") {
  for (const char* target : {"launcher", "rank"}) {
    const Workplace place;
    Running launcher(
        place.start("train_ddp", kLong + "--nproc 2 --set train.checkpoint_interval=0"));
    wait_for_step(place, 5);
    const std::map<int, pid_t> ranks = ranks_of(launcher.pid());
    REQUIRE(ranks.size() == 2);
    if (target == std::string("launcher")) {
      kill(launcher.pid(), SIGINT);
    } else {
      kill(ranks.at(1), SIGTERM);
    }
    INFO(target);
    CHECK(launcher.end() == 0);
    CHECK(place.read("err.txt") == "");
    CHECK(count_of(place.read("out.txt"), "saved run/checkpoints/step_") == 1);
    const fs::directory_iterator folders(place.path / "run/checkpoints"), none;
    CHECK(std::distance(folders, none) == 1);
    for (const auto& [rank, pid] : ranks) CHECK_FALSE(is_running(pid));
  }
}

TEST_CASE("a run that is started again ends as if it had never been broken", "[tools]") {
  const Workplace place;
  const std::string arguments =
      "--config small.json --nproc 2 --set train.checkpoint_interval=20 --max-steps 400 --out-dir ";
  const Finished whole = place.run("train_ddp", arguments + "whole");
  REQUIRE(whole.code == 0);
  Running launcher(place.start("train_ddp", arguments + "run --max-restarts 2"));
  for (const int step : {30, 130}) {
    wait_for_step(place, step);
    const std::map<int, pid_t> ranks = ranks_of(launcher.pid());
    REQUIRE(ranks.size() == 2);
    kill(ranks.at(step == 30 ? 1 : 0), SIGKILL);
  }
  CHECK(launcher.end() == 0);
  const std::string err = place.read("err.txt");
  INFO(err);
  CHECK(count_of(err, "starting all ranks again") == 2);
  CHECK(place.read("out.txt").find("continuing from run/checkpoints/step_") != std::string::npos);
  CHECK(weights_line(place.read("out.txt")) == weights_line(whole.out));
  CHECK(losses(place, "run") == losses(place, "whole"));
}

#endif
