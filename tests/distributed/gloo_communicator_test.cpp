#include "distributed/gloo_communicator.h"

#include <csignal>
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

}  // namespace

TEST_CASE("processes reduce, scatter, gather and broadcast over Gloo", "[distributed]") {
  for (int size : {1, 2, 4}) {
    for (const std::string& wrong : run_processes(Backend::gloo, size, check_collectives)) {
      CHECK(wrong == "");
    }
  }
}

TEST_CASE("a killed process is named by those that wait for it", "[distributed]") {
  const auto start = std::chrono::steady_clock::now();
  const RankResults results =
      run_processes(Backend::gloo, 2, [](const Context& ctx, Communicator& comm) -> std::string {
        all_reduce_once(ctx, comm);
        if (comm.rank() == 1) raise(SIGKILL);
        all_reduce_once(ctx, comm);
        return "done";
      });
  CHECK(results[0].starts_with("error: rank 1 was lost: "));
  CHECK(results[1] == "signal 9");
  CHECK(std::chrono::steady_clock::now() - start < 15s);
}

TEST_CASE("a process that stalls is named after the time-out", "[distributed]") {
  const RankResults results = run_processes(
      Backend::gloo, 2,
      [](const Context& ctx, Communicator& comm) -> std::string {
        all_reduce_once(ctx, comm);
        if (comm.rank() == 1) std::this_thread::sleep_for(3s);
        all_reduce_once(ctx, comm);
        return "done";
      },
      1s);
  CHECK(results[0].starts_with("error: rank 1 was lost: "));
  CHECK(results[1].starts_with("error: rank 0 was lost: "));
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
  const RankResults results =
      run_processes(Backend::gloo, 2, [](const Context& ctx, Communicator& comm) -> std::string {
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
      });
  CHECK(results == RankResults{"rank 1 was lost: said the watcher", "late"});
}

#endif
