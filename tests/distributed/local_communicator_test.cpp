#include "distributed/local_communicator.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "core/copy.h"
#include "core/error.h"
#include "distributed/ranks.h"
#include "support/catch.h"

using namespace xtrain;

TEST_CASE("threads reduce, scatter, gather and broadcast", "[distributed]") {
  for (int size : {1, 2, 3, 4}) {
    for (const std::string& wrong : run_threads(size, check_collectives)) CHECK(wrong == "");
  }
}

TEST_CASE("a sum goes in the order of the ranks and rounds once", "[distributed]") {
  // In f32, 2^24 + 1 is 2^24, so the order of the terms can be told from the sum.
  const std::vector<double> terms{1.0, 1.0, 0x1p24, -0x1p24};
  const auto sum_in = [&](Dtype dtype) {
    return run_threads(4, [&](const Context& ctx, Communicator& comm) {
      const Tensor x = empty(ctx, {5}, dtype);
      fill(ctx, x, terms[comm.rank()]);
      comm.all_reduce(ctx, x);
      comm.finish(ctx);
      Tensor wide = empty(ctx, {5}, Dtype::f64);
      copy(ctx, x, wide);
      return text(to_host<double>(ctx, wide)[4]);
    });
  };
  CHECK(sum_in(Dtype::f32) == RankResults(4, "2"));
  CHECK(sum_in(Dtype::bf16) == RankResults(4, "2"));  // summed in f32
  CHECK(sum_in(Dtype::f64) == RankResults(4, "2"));
}

TEST_CASE("an operation runs beside the caller until it asks for the result", "[distributed]") {
  std::atomic<bool> second_may_come{false};
  const RankResults results =
      run_threads(2, [&](const Context& ctx, Communicator& comm) -> std::string {
        const Tensor x = zeros(ctx, {8}, Dtype::f32);
        if (comm.rank() == 1) second_may_come.wait(false);
        comm.all_reduce(ctx, x);
        // Had the first rank waited for the second here, nobody would let the second one come.
        second_may_come = true;
        second_may_come.notify_all();
        comm.finish(ctx);
        return text(comm.completed());
      });
  CHECK(results == RankResults(2, "1"));
}

// Of the rank that waits for the other; what the other waits is too short to say anything of.
TEST_CASE("what work hides of an operation is not counted as a wait", "[distributed]") {
  constexpr std::chrono::milliseconds kDelay{50};
  constexpr double kSeconds = std::chrono::duration<double>(kDelay).count();
  std::atomic<bool> first_has_begun{false}, first_waits{false};
  const RankResults results =
      run_threads(2, [&](const Context& ctx, Communicator& comm) -> std::string {
        const Tensor x = zeros(ctx, {8}, Dtype::f32);
        if (comm.rank() == 1) {
          first_has_begun.wait(false);
          std::this_thread::sleep_for(kDelay);
        }
        comm.all_reduce(ctx, x);
        first_has_begun = true;
        first_has_begun.notify_all();
        while (comm.completed() < 1) std::this_thread::sleep_for(kDelay / 10);
        comm.finish(ctx);
        const CommunicationTime hidden = comm.time();
        if (comm.rank() == 1) {
          first_waits.wait(false);
          std::this_thread::sleep_for(kDelay);
        }
        comm.all_reduce(ctx, x);
        first_waits = true;
        first_waits.notify_all();
        comm.finish(ctx);
        const CommunicationTime both = comm.time();
        if (comm.rank() == 1) return "";
        check(hidden.operations > kSeconds / 2, "operations ", hidden.operations);
        check(hidden.waits < hidden.operations, "waits ", hidden.waits);
        return text(both.waits - hidden.waits > kSeconds / 2);
      });
  CHECK(results == RankResults{"1", ""});
}

TEST_CASE("a wait is for as many operations as it says", "[distributed]") {
  std::atomic<bool> second_may_come{false};
  const RankResults results =
      run_threads(2, [&](const Context& ctx, Communicator& comm) -> std::string {
        comm.all_reduce(ctx, zeros(ctx, {8}, Dtype::f32));
        if (comm.rank() == 1) second_may_come.wait(false);
        comm.all_reduce(ctx, zeros(ctx, {8}, Dtype::f32));
        // Had the first rank waited for both here, nobody would let the second one come.
        if (comm.rank() == 0) comm.wait_for(ctx, comm.begun() - 1);
        second_may_come = true;
        second_may_come.notify_all();
        comm.finish(ctx);
        return text(comm.begun());
      });
  CHECK(results == RankResults(2, "2"));
}

TEST_CASE("ranks that call different operations get an error", "[distributed]") {
  const RankResults results =
      run_threads(2, [](const Context& ctx, Communicator& comm) -> std::string {
        comm.all_reduce(ctx, zeros(ctx, {comm.rank() == 0 ? 8 : 16}, Dtype::f32));
        comm.finish(ctx);
        return "done";
      });
  CHECK(results[0] ==
        "error: rank 1 sends 32 bytes where rank 0 expects 16: all ranks must call the same "
        "operations");
  CHECK(results[1].starts_with("error: rank 0 sends 16 bytes where rank 1 expects 32"));
}

TEST_CASE("a rank that leaves or aborts frees those that wait for it", "[distributed]") {
  for (bool aborts : {false, true}) {
    const RankResults results =
        run_threads(3, [&](const Context& ctx, Communicator& comm) -> std::string {
          comm.all_reduce(ctx, zeros(ctx, {8}, Dtype::f32));
          comm.finish(ctx);
          if (comm.rank() == 1) {
            if (aborts) comm.abort("rank 1 was lost: no power");
            return "gone";
          }
          comm.all_reduce(ctx, zeros(ctx, {8}, Dtype::f32));
          comm.finish(ctx);
          return "done";
        });
    const std::string error =
        aborts ? "error: rank 1 was lost: no power" : "error: rank 1 has left";
    CHECK(results == RankResults{error, "gone", error});
  }
}

TEST_CASE("tensors that cannot travel are refused", "[distributed]") {
  const RankResults results =
      run_threads(1, [](const Context& ctx, Communicator& comm) -> std::string {
        const Tensor x = zeros(ctx, {4, 4}, Dtype::f32);
        std::string errors;
        const auto refused = [&](const std::function<void()>& call) {
          try {
            call();
            errors += "accepted\n";
          } catch (const Error& error) {
            errors += std::string(error.what()) + "\n";
          }
        };
        refused([&] { comm.all_reduce(ctx, x.transpose(0, 1)); });
        refused([&] { comm.all_gather(ctx, x.slice(0, 0, 2), x); });
        refused([&] { comm.broadcast(ctx, x, 1); });
        return errors;
      });
  CHECK(results[0] ==
        "all_reduce: needs a contiguous tensor on device cpu; got shape (4, 4) on cpu\n"
        "all_gather: values must be 1 parts like own; got 16 elements of f32 and 8 of f32\n"
        "broadcast: the root must be a rank below 1; got 1\n");
}
