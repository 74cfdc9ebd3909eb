#include "distributed/gloo_communicator.h"

#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/copy.h"
#include "distributed/folder_store.h"
#include "distributed/ranks.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#if XT_GLOO_BUILT

using namespace xtrain;
using namespace std::chrono_literals;

namespace {

void all_reduce_once(const Context& ctx, Communicator& comm) {
  comm.all_reduce(ctx, zeros(ctx, {100000}, Dtype::f32));
  comm.finish(ctx);
}

// "yes" where this process maps memory that ranks share.
std::string maps_shared_memory() {
  std::ifstream file("/proc/self/maps");
  const std::string maps{std::istreambuf_iterator<char>(file), {}};
  return maps.find("/memfd:xtrain-") != std::string::npos ? "yes" : "no";
}

// While it lives, this process and its children write no file longer than so many bytes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, before_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  sighandler_t before_handler_;
  rlimit before_{};
};

}  // namespace

TEST_CASE("processes reduce, scatter, gather and broadcast over Gloo", "[distributed]") {
  for (bool share_memory : {true, false}) {
    for (int size : {1, 2, 4}) {
      INFO(size << " processes, shared memory " << share_memory);
      for (const std::string& wrong :
           run_processes(Backend::gloo, size, check_collectives, {30s, share_memory})) {
        CHECK(wrong == "");
      }
    }
  }
}

TEST_CASE("processes of one host share memory where the system lets them", "[distributed]") {
  const RankBody body = [](const Context& ctx, Communicator& comm) {
    all_reduce_once(ctx, comm);
    return maps_shared_memory();
  };
  CHECK(run_processes(Backend::gloo, 3, body) == RankResults(3, "yes"));
  CHECK(run_processes(Backend::gloo, 3, body, {30s, false}) == RankResults(3, "no"));
  const FileSizeLimit limit(4096);
  CHECK(run_processes(Backend::gloo, 3, body) == RankResults(3, "no"));
}

// More than a channel of the shared memory holds at once.
TEST_CASE("messages of many pieces arrive whole and in order", "[distributed]") {
  const RankResults results =
      run_processes(Backend::gloo, 3, [](const Context& ctx, Communicator& comm) -> std::string {
        std::vector<double> values(1000003);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
        for (int round = 0; round < 5; ++round) {
          const Tensor x = comm.rank() == round % 3 ? from_host(ctx, values, {1000003})
                                                    : zeros(ctx, {1000003}, Dtype::f64);
          comm.broadcast(ctx, x, round % 3);
          comm.all_reduce(ctx, x);
          comm.finish(ctx);
          for (double& value : values) value *= 3.0;
          if (to_host<double>(ctx, x) != values) return text("round ", round);
        }
        return "same";
      });
  CHECK(results == RankResults(3, "same"));
}

TEST_CASE("processes that call different operations are told", "[distributed]") {
  const RankResults results =
      run_processes(Backend::gloo, 2, [](const Context& ctx, Communicator& comm) -> std::string {
        comm.all_reduce(ctx, zeros(ctx, {comm.rank() == 0 ? 8 : 16}, Dtype::f32));
        comm.finish(ctx);
        return "done";
      });
  CHECK(results[0] ==
        "error: rank 1 sends 32 bytes where rank 0 expects 16: all ranks must call the same "
        "operations");
  CHECK(results[1].starts_with("error: rank 0 sends 16 bytes where rank 1 expects 32"));
}

TEST_CASE("a killed process is named by those that wait for it", "[distributed]") {
  const RankBody body = [](const Context& ctx, Communicator& comm) -> std::string {
    all_reduce_once(ctx, comm);
    if (comm.rank() == 1) raise(SIGKILL);
    all_reduce_once(ctx, comm);
    return "done";
  };
  for (bool share_memory : {true, false}) {
    const auto start = std::chrono::steady_clock::now();
    const RankResults results = run_processes(Backend::gloo, 2, body, {30s, share_memory});
    CHECK(results[0].starts_with("error: rank 1 was lost: "));
    CHECK(results[1] == "signal 9");
    CHECK(std::chrono::steady_clock::now() - start < 15s);
  }
}

TEST_CASE("a process that stalls is named after the time-out", "[distributed]") {
  const RankBody body = [](const Context& ctx, Communicator& comm) -> std::string {
    all_reduce_once(ctx, comm);
    if (comm.rank() == 1) std::this_thread::sleep_for(3s);
    all_reduce_once(ctx, comm);
    return "done";
  };
  for (bool share_memory : {true, false}) {
    const RankResults results = run_processes(Backend::gloo, 2, body, {1s, share_memory});
    CHECK(results[0].starts_with("error: rank 1 was lost: "));
    CHECK(results[1].starts_with("error: rank 0 was lost: "));
  }
}

TEST_CASE("a process that never comes is missed after the time-out", "[distributed]") {
  const TemporaryFolder folder;
  FolderStore store(folder.path);
  const auto start = std::chrono::steady_clock::now();
  std::string error = "none";
  try {
    connect(Backend::gloo, cpu_context(1), {0, 2, "127.0.0.1", 500ms}, store);
  } catch (const Error& e) {
    error = e.what();
  }
  CHECK(error.starts_with("gloo: rank 0 at 127.0.0.1 cannot connect with the others: "));
  CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("an abort frees a process that waits for another", "[distributed]") {
  const RankBody body = [](const Context& ctx, Communicator& comm) -> std::string {
    all_reduce_once(ctx, comm);
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(2s);
      return "late";
    }
    const auto start = std::chrono::steady_clock::now();
    std::thread watcher([&] {
      std::this_thread::sleep_for(200ms);
      comm.abort("rank 1 was lost: said the watcher");
    });
    std::string error = "none";
    try {
      all_reduce_once(ctx, comm);
    } catch (const Error& e) {
      error = e.what();
    }
    watcher.join();
    return std::chrono::steady_clock::now() - start < 1500ms ? error : "too late: " + error;
  };
  for (bool share_memory : {true, false}) {
    CHECK(run_processes(Backend::gloo, 2, body, {30s, share_memory}) ==
          RankResults{"rank 1 was lost: said the watcher", "late"});
  }
}

#endif
