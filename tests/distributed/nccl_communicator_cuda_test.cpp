#include <csignal>
#include <thread>

#include "distributed/nccl_communicator.h"
#include "distributed/parallel_run.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"

#if XT_NCCL_BUILT

using namespace xtrain;

TEST_CASE("two GPUs reduce, scatter, gather and broadcast", "[distributed][multi_gpu]") {
  for (const std::string& wrong : run_processes(Backend::nccl, 2, check_collectives)) {
    CHECK(wrong == "");
  }
}

TEST_CASE("two GPUs equal one with their batches together", "[distributed][multi_gpu]") {
  const TemporaryFolder folder;
  for (const std::string attention : {"composed", "flash"}) {
    Run run;
    run.settings = {"train.device=cuda", "train.attention=" + attention, "train.grad_accum_steps=2",
                    set_batch(4)};
    run.ranks = 1;
    const std::vector<double> whole =
        from_bytes(train(run, folder.path.string(), Backend::nccl)[0]);
    run.settings.back() = set_batch(2);
    run.ranks = 2;
    for (bool zero : {false, true}) {
      INFO(attention << ", zero " << zero);
      run.options.zero = zero;
      const RankResults results = train(run, folder.path.string(), Backend::nccl);
      CHECK(all_equal(results));
      REQUIRE(from_bytes(results[0]).size() == whole.size());
      CHECK(loss_difference(from_bytes(results[0]), whole, run.steps) <=
            twin_tolerance(Dtype::f32));
      CHECK((train(run, folder.path.string(), Backend::nccl) == results));
    }
  }
}

TEST_CASE("two GPUs train a bf16 model with small buckets, the same each time",
          "[distributed][multi_gpu]") {
  const TemporaryFolder folder;
  Run run;
  run.steps = 10;
  run.settings = {"train.device=cuda", "train.dtype=bf16"};
  run.options = {true, true, 10000};
  const RankResults results = train(run, folder.path.string(), Backend::nccl);
  CHECK(all_equal(results));
  CHECK((train(run, folder.path.string(), Backend::nccl) == results));
}

TEST_CASE("two GPUs whose gradients travel behind a recorded backward have the same bits",
          "[distributed][multi_gpu]") {
  const TemporaryFolder folder;
  for (const char* dtype : {"f32", "bf16"}) {
    for (const char* micro_steps : {"1", "3"}) {
      for (bool zero : {false, true}) {
        INFO(dtype << ", " << micro_steps << " micro-steps, zero " << zero);
        Run run;
        run.steps = 10;
        run.settings = {"train.device=cuda", std::string("train.dtype=") + dtype,
                        std::string("train.grad_accum_steps=") + micro_steps, "model.dropout=0.1"};
        run.options = {zero, false, 10000};
        const RankResults expected = train(run, folder.path.string(), Backend::nccl);
        run.options.overlap = false;
        CHECK((train(run, folder.path.string(), Backend::nccl) == expected));
      }
    }
  }
}

TEST_CASE("a GPU whose peer is gone or stalls does not wait for ever", "[distributed][multi_gpu]") {
  for (bool killed : {true, false}) {
    const auto start = std::chrono::steady_clock::now();
    const RankResults results =
        run_processes(Backend::nccl, 2,
                      [&](const Context& ctx, Communicator& comm) -> std::string {
                        const auto all_reduce = [&] {
                          comm.all_reduce(ctx, zeros(ctx, {100000}, Dtype::f32));
                          comm.finish(ctx);
                          ctx.queue->synchronize();
                        };
                        all_reduce();
                        if (comm.rank() == 1 && killed) raise(SIGKILL);
                        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
                        all_reduce();
                        comm.finish(ctx);
                        return "done";
                      },
                      {std::chrono::seconds(4)});
    CHECK(results[0].starts_with("error: nccl: "));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  }
}

#endif
