#include "distributed/ddp.h"

#include <filesystem>

#include "core/copy.h"
#include "core/error.h"
#include "distributed/parallel_run.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/reduce/reduce.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "train/small_run.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

std::vector<double> train_alone(const Run& run, const std::string& out_dir) {
  const Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, small_run(out_dir, run.settings), alone);
  return record_of(trainer, alone, ctx, run.steps);
}

// A step's gradient may be small and its last bits are amplified by every later step, so what
// rounding may do to a loss is given for the whole run.
double loss_limit(const std::string& dtype) {
  return twin_tolerance(dtype_from_name(dtype));
}

}  // namespace

TEST_CASE("ranks equal one process with their batches together", "[distributed]") {
  const TemporaryFolder folder;
  for (const std::string dtype : {"f64", "f32"}) {
    for (const std::string attention : {"composed", "flash"}) {
      Run run;
      run.settings = {"train.dtype=" + dtype, "train.attention=" + attention,
                      "train.grad_accum_steps=2", "model.dropout=0.1"};
      for (int ranks : {2, 3, 4}) {  // three do not divide the arena
        run.settings.push_back(set_batch(ranks));
        const std::vector<double> whole = train_alone(run, folder.path.string());
        run.settings.back() = set_batch(1);
        run.ranks = ranks;
        RankResults plain;
        for (bool zero : {false, true}) {
          INFO(dtype << ", " << attention << ", " << ranks << " ranks, zero " << zero);
          run.options.zero = zero;
          const RankResults results = train(run, folder.path.string());
          REQUIRE(from_bytes(results[0]).size() == whole.size());
          CHECK(loss_difference(from_bytes(results[0]), whole, run.steps) <= loss_limit(dtype));
          CHECK(all_equal(results));
          if (zero) CHECK((results == plain));
          plain = results;
        }
        run.settings.pop_back();
      }
    }
  }
}

TEST_CASE("buckets of any size give the same bits, and so does a second run", "[distributed]") {
  const TemporaryFolder folder;
  for (int ranks : {2, 3}) {  // three do not divide the arena
    for (bool bf16 : {false, true}) {
      Run run;
      run.ranks = ranks;
      run.steps = 5;
      run.options.reduce_in_bf16 = bf16;
      const RankResults expected = train(run, folder.path.string());
      CHECK((train(run, folder.path.string()) == expected));
      for (bool zero : {false, true}) {
        for (int64_t bytes : {1, 1000, 16000}) {
          INFO(ranks << " ranks, bf16 " << bf16 << ", zero " << zero << ", buckets of " << bytes);
          run.options.zero = zero;
          run.options.bucket_bytes = bytes;
          const RankResults results = train(run, folder.path.string());
          CHECK(all_equal(results));
          // The norm is summed in other portions, so its last bits may differ.
          CHECK(loss_difference(from_bytes(results[0]), from_bytes(expected[0]), run.steps) <=
                twin_tolerance(Dtype::f32));
        }
      }
    }
  }
}

TEST_CASE("gradients that travel when backward has ended have the same bits", "[distributed]") {
  const TemporaryFolder folder;
  for (bool bf16 : {false, true}) {
    for (bool zero : {false, true}) {
      INFO("bf16 " << bf16 << ", zero " << zero);
      Run run;
      run.ranks = 3;
      run.steps = 5;
      run.settings = {"train.grad_accum_steps=2"};
      run.options = {zero, bf16, 16000};
      const RankResults expected = train(run, folder.path.string());
      run.options.overlap = false;
      CHECK((train(run, folder.path.string()) == expected));
#if XT_GLOO_BUILT
      CHECK((train(run, folder.path.string(), Backend::gloo) == expected));
#endif
    }
  }
}

TEST_CASE("gradients that travel as bf16 train as well", "[distributed]") {
  const TemporaryFolder folder;
  Run run;
  const std::vector<double> exact = from_bytes(train(run, folder.path.string())[0]);
  run.options.reduce_in_bf16 = true;
  for (bool zero : {false, true}) {
    run.options.zero = zero;
    const RankResults results = train(run, folder.path.string());
    CHECK(all_equal(results));
    const std::vector<double> rounded = from_bytes(results[0]);
    CHECK(loss_difference(rounded, exact, run.steps) > 0.0);
    CHECK(loss_difference(rounded, exact, run.steps) <= twin_tolerance(Dtype::bf16));
  }
}

TEST_CASE("bf16 models keep the same weights on all ranks", "[distributed]") {
  const TemporaryFolder folder;
  Run run;
  run.steps = 10;
  run.settings = {"train.dtype=bf16"};
  const RankResults plain = train(run, folder.path.string());
  CHECK(all_equal(plain));
  run.options.zero = true;
  CHECK((train(run, folder.path.string()) == plain));
}

TEST_CASE("ranks that start from a model's folder start from its weights", "[distributed]") {
  const TemporaryFolder folder;
  Replica alone;
  const Context lone = cpu_context(1);
  Trainer source(lone, small_run(folder.file("source")), alone);
  source.train_step();
  const std::string init = "train.init=" + source.save(), weights = source.weights_checksum();
  for (const char* dtype : {"train.dtype=f32", "train.dtype=bf16"}) {
    for (bool zero : {false, true}) {
      INFO(dtype << ", zero " << zero);
      const auto body = [&](const Context& ctx, Communicator& communicator) {
        DataParallelOptions options;
        options.zero = zero;
        DataParallel replica(ctx, communicator, options);
        return Trainer(ctx, small_run(folder.file("run"), {init, dtype}), replica)
            .weights_checksum();
      };
      for (const std::string& found : run_threads(2, body)) CHECK(found == weights);
    }
  }
}

#if XT_GLOO_BUILT
TEST_CASE("processes give the bits that threads give", "[distributed]") {
  const TemporaryFolder folder;
  for (int ranks : {2, 4}) {
    for (bool zero : {false, true}) {
      Run run;
      run.ranks = ranks;
      run.steps = 10;
      run.options.zero = zero;
      run.settings = {"train.grad_accum_steps=2", set_batch(1)};
      INFO(ranks << " ranks, zero " << zero);
      const RankResults processes = train(run, folder.path.string(), Backend::gloo);
      CHECK((processes == train(run, folder.path.string())));
    }
  }
}
#endif

// --- uneven work ---------------------------------------------------------------------------------

namespace {

// Three parameters, of which a micro-batch uses some.
struct ThreeParameters {
  explicit ThreeParameters(const Context& ctx) {
    for (const char* name : {"a", "b", "c"}) set.add(name, {300}, ParameterKind::vector, 1.0, 0.0);
    set.allocate(ctx, Dtype::f32);
    for (Parameter& p : set.list()) fill(ctx, p.value, 1.0);
  }
  ParameterSet set;
};

// Adds the gradients of micro-batch m = 0..3: 0 and 1 are rank 0's, 2 and 3 rank 1's. a is used in
// the first micro-batch of every rank, b on rank 0, c never.
void add_micro_batch(const Context& ctx, ParameterSet& set, int m, int step,
                     const OnReady& on_ready) {
  const Tensor x = empty(ctx, {300}, Dtype::f32);
  fill(ctx, x, 1.0 + m + 10.0 * step);
  Tape tape(ctx);
  Var loss;
  const auto use_parameter = [&](const char* name) {
    const Var term = sum(ctx, mul(ctx, tape.parameter(*set.find(name)), x));
    loss = loss.defined() ? add(ctx, loss, term) : term;
  };
  if (m % 2 == 0) use_parameter("a");
  if (m < 2) use_parameter("b");
  if (loss.defined()) tape.backward(loss, on_ready);
}

}  // namespace

TEST_CASE("the ranks' shares tile the arena, and each rank owns its own", "[distributed]") {
  for (int ranks : {1, 2, 3, 5}) {
    for (int64_t bucket_bytes : {64, 1000, 100000}) {
      for (bool zero : {false, true}) {
        INFO(ranks << " ranks, zero " << zero << ", buckets of " << bucket_bytes);
        const RankResults results =
            run_threads(ranks, [&](const Context& ctx, Communicator& communicator) {
              ThreeParameters parameters(ctx);
              DataParallel replica(ctx, communicator, {zero, false, bucket_bytes});
              replica.attach(parameters.set);
              std::vector<double> counts(2 * parameters.set.arena_size());
              for (ArenaRange r : replica.share()) {
                for (int64_t i = r.begin; i < r.end; ++i) ++counts[2 * i];
              }
              for (ArenaRange r : replica.owned()) {
                for (int64_t i = r.begin; i < r.end; ++i) ++counts[2 * i + 1];
              }
              return to_bytes(counts);
            });
        const size_t elements = from_bytes(results[0]).size() / 2;
        std::vector<double> shares(elements);
        bool owned = true;
        for (const std::string& result : results) {
          const std::vector<double> counts = from_bytes(result);
          for (size_t i = 0; i < elements; ++i) {
            shares[i] += counts[2 * i];
            owned = owned && counts[2 * i + 1] >= counts[2 * i] && counts[2 * i + 1] <= 1.0;
          }
        }
        CHECK((shares == std::vector<double>(elements, 1.0)));
        CHECK(owned);
      }
    }
  }
}

TEST_CASE("parameters that some ranks or micro-batches do not use are summed all the same",
          "[distributed]") {
  for (bool zero : {false, true}) {
    for (int64_t bucket_bytes : {64, 100000}) {
      INFO("zero " << zero << ", buckets of " << bucket_bytes);
      const RankResults results =
          run_threads(2, [&](const Context& ctx, Communicator& communicator) {
            ThreeParameters parameters(ctx);
            DataParallel replica(ctx, communicator, {zero, false, bucket_bytes});
            replica.attach(parameters.set);
            std::vector<double> record;
            for (int step = 0; step < 3; ++step) {
              parameters.set.clear_grads();
              const int first = 2 * replica.rank();
              add_micro_batch(ctx, parameters.set, first, step, {});
              add_micro_batch(ctx, parameters.set, first + 1, step,
                              [&](Parameter& p) { replica.grad_ready(p); });
              replica.finish_grads();
              replica.gather(parameters.set.grads());
              for (Parameter& p : parameters.set.list()) {
                record.push_back(p.has_grad);
                for (double g : doubles(ctx, p.grad)) record.push_back(g);
              }
            }
            return to_bytes(record);
          });
      const Context ctx = cpu_context(1);
      std::vector<double> expected;
      ThreeParameters alone(ctx);
      for (int step = 0; step < 3; ++step) {
        alone.set.clear_grads();
        for (int m = 0; m < 4; ++m) add_micro_batch(ctx, alone.set, m, step, {});
        alone.set.zero_missing_grads(ctx);
        for (Parameter& p : alone.set.list()) {
          expected.push_back(p.has_grad);
          for (double g : doubles(ctx, p.grad)) expected.push_back(g);
        }
      }
      CHECK(from_bytes(results[0]) == expected);
      CHECK(all_equal(results));
    }
  }
}

namespace {

// Rank 0 of two, whose collectives never end: notes what the work waits for.
class EndlessOperations final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(const Context&, Tensor) override { ++begun_; }
  void reduce_scatter(const Context&, Tensor, Tensor) override { ++begun_; }
  void all_gather(const Context& ctx, Tensor own, Tensor values) override {
    for (int64_t r = 0; r < 2; ++r) copy(ctx, own, values.slice(0, r * own.numel(), own.numel()));
    ++begun_;
  }
  void broadcast(const Context&, Tensor, int) override { ++begun_; }
  void wait_for(const Context&, int64_t count) override { waits.push_back(count); }
  int64_t begun() const override { return begun_; }
  int64_t completed() const override { return 0; }
  CommunicationTime time() const override { return {}; }
  std::string failure() const override { return ""; }
  void abort(const std::string&) override {}

  std::vector<int64_t> waits;

 private:
  int64_t begun_ = 0;
};

}  // namespace

TEST_CASE("with shared optimizer state a forward pass waits for each weight where it needs it",
          "[distributed]") {
  const Context ctx = cpu_context(1);
  EndlessOperations communicator;
  ThreeParameters parameters(ctx);  // in the arena: c, b, a, each a bucket
  const int64_t elements = parameters.set.find("b")->offset;
  DataParallel replica(ctx, communicator, {true, false, elements * size_of(Dtype::f32)});
  replica.attach(parameters.set);
  replica.finish_grads();
  const int64_t before = communicator.begun();
  const ArenaRanges owned = replica.owned();
  for (auto range = owned.rbegin(); range != owned.rend(); ++range) replica.updated(*range);
  REQUIRE(communicator.begun() == before + 3);
  communicator.waits.clear();
  Tape tape(ctx);
  const auto waits_of = [&](const char* name) {
    communicator.waits.clear();
    use(&tape, *parameters.set.find(name));
    use(nullptr, *parameters.set.find(name));
    return communicator.waits;
  };
  CHECK(waits_of("a") == std::vector<int64_t>{before + 1});
  CHECK(waits_of("b") == std::vector<int64_t>{before + 2});
  CHECK(waits_of("a").empty());
  CHECK(waits_of("c") == std::vector<int64_t>{before + 3});
}

TEST_CASE("gradients leave with their bucket, or when backward has ended", "[distributed]") {
  const Context ctx = cpu_context(1);
  for (bool overlap : {true, false}) {
    for (bool zero : {false, true}) {
      INFO("overlap " << overlap << ", zero " << zero);
      EndlessOperations communicator;
      ThreeParameters parameters(ctx);  // in the arena: c, b, a, each a bucket
      const int64_t elements = parameters.set.find("b")->offset;
      DataParallel replica(ctx, communicator,
                           {zero, false, elements * size_of(Dtype::f32), overlap});
      replica.attach(parameters.set);
      for (int step = 0; step < 2; ++step) {
        parameters.set.clear_grads();
        const int64_t before = communicator.begun();
        for (const char* name : {"c", "b", "a"}) replica.grad_ready(*parameters.set.find(name));
        CHECK(communicator.begun() == before + (overlap ? 3 : 0));
        communicator.waits.clear();
        replica.finish_grads();
        CHECK(communicator.begun() == before + 3);
        CHECK(communicator.waits == std::vector<int64_t>{before + 3});
      }
    }
  }
}

namespace {

// The CPU's queue, but one that records. On a GPU, recorded work runs without the host and so
// leaves no marks in its bookkeeping, here which parameters have a gradient: only taking it down
// does.
class RecordingQueue final : public Queue {
 public:
  explicit RecordingQueue(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  void copy_in(const void* host, void* device, int64_t bytes) override {
    queue_->copy_in(host, device, bytes);
  }
  void copy_out(const void* device, void* host, int64_t bytes) override {
    queue_->copy_out(device, host, bytes);
  }
  std::unique_ptr<Event> record() override { return queue_->record(); }
  void synchronize() override { queue_->synchronize(); }
  bool records() const override { return true; }
  std::unique_ptr<RecordedWork> record_work(const std::function<void()>& work) override {
    return std::make_unique<Work>(*this, work);
  }

  ParameterSet* parameters = nullptr;
  int runs = 0;  // of recorded work

 private:
  using Marks = std::vector<bool>;
  Marks marks() const {
    Marks result;
    for (const Parameter& p : parameters->list()) result.push_back(p.has_grad);
    return result;
  }
  void set_marks(const Marks& marks) {
    size_t i = 0;
    for (Parameter& p : parameters->list()) p.has_grad = marks[i++];
  }

  class Work final : public RecordedWork {
   public:
    Work(RecordingQueue& queue, std::function<void()> work)
        : queue_(queue), work_(std::move(work)), marks_(queue.marks()) {}
    void run() override {
      const Marks before = queue_.marks();
      queue_.set_marks(marks_);
      work_();
      if (runs_++ > 0) queue_.set_marks(before);
      ++queue_.runs;
    }

   private:
    RecordingQueue& queue_;
    const std::function<void()> work_;
    const Marks marks_;  // as they were when the work was taken down
    int runs_ = 0;
  };

  const std::shared_ptr<Queue> queue_;
};

}  // namespace

TEST_CASE("where gradients travel behind it, a recorded backward gives the same bits",
          "[distributed]") {
  const TemporaryFolder folder;
  for (const char* micro_steps : {"1", "3"}) {
    for (bool zero : {false, true}) {
      INFO(micro_steps << " micro-steps, zero " << zero);
      Run run;
      run.steps = 5;
      run.options = {zero, false, 16000};
      run.settings = {std::string("train.grad_accum_steps=") + micro_steps, "model.dropout=0.1"};
      const RankResults expected = train(run, folder.path.string());
      for (bool overlap : {true, false}) {
        run.options.overlap = overlap;
        const auto body = [&](const Context& given, Communicator& communicator) {
          Context ctx = given;
          const auto queue = std::make_shared<RecordingQueue>(given.queue);
          ctx.queue = queue;
          DataParallel replica(ctx, communicator, run.options);
          Trainer trainer(ctx, small_run(folder.path.string(), run.settings), replica);
          queue->parameters = &trainer.model().parameters();
          const std::string record = to_bytes(record_of(trainer, replica, ctx, run.steps));
          check((queue->runs > 0) == !overlap, queue->runs, " runs of recorded work");
          return record;
        };
        CHECK((run_threads(2, body) == expected));
      }
    }
  }
}

TEST_CASE("ranks share validation tokens that do not divide evenly", "[distributed]") {
  const TemporaryFolder folder;
  std::string train_text, val_text;
  for (int i = 0; i < 2000; ++i) train_text += static_cast<char>('a' + i * i % 7);
  for (int i = 0; i < 40; ++i) val_text += static_cast<char>('a' + i * i % 7);
  const std::string train_file = folder.write("train.txt", train_text);
  const auto losses = [&](int ranks, const std::string& val_file, const char* eval_steps) {
    return run_threads(ranks, [&](const Context& ctx, Communicator& communicator) {
      RunConfig config =
          small_run(folder.file("run"),
                    {"data.source=chars", "train.dtype=f64",
                     std::string("train.eval_steps=") + eval_steps, set_batch(4 / ranks)});
      config.data.train_files = {train_file};
      config.data.val_files = {val_file};
      DataParallel replica(ctx, communicator);
      Trainer trainer(ctx, config, replica);
      for (int i = 0; i < 3; ++i) trainer.train_step();
      return to_bytes({trainer.validation_loss().value()});
    });
  };
  const std::string one_window = folder.write("one.txt", val_text);
  const std::string many = folder.write("many.txt", train_text.substr(0, 1500));
  for (const std::string& file : {one_window, many}) {
    for (const char* eval_steps : {"0", "2", "1000"}) {
      INFO(file << ", " << eval_steps << " steps");
      const double alone = from_bytes(losses(1, file, eval_steps)[0])[0];
      CHECK(std::isfinite(alone));
      for (int ranks : {2, 4}) {
        const RankResults results = losses(ranks, file, eval_steps);
        CHECK(all_equal(results));
        const double together = from_bytes(results[0])[0];
        CHECK(std::abs(together - alone) <= twin_tolerance(Dtype::f64) * alone);
      }
    }
  }
}

// --- checkpoints and stops -----------------------------------------------------------------------

namespace {

// Trains from `resume` to `steps`, saves, and gives the losses of its steps and its checksum.
RankResults train_and_save(const std::string& out_dir, int ranks, bool zero,
                           const std::string& resume, int64_t steps, const char* dtype) {
  return run_threads(ranks, [&](const Context& ctx, Communicator& communicator) {
    RunConfig config = small_run(
        out_dir, {std::string("train.dtype=") + dtype, set_batch(4 / ranks), "model.dropout=0.1",
                  "train.lr_schedule=constant", "train.keep_latest=0"});
    config.train.resume = resume;
    DataParallel replica(ctx, communicator, {zero});
    Trainer trainer(ctx, config, replica);
    std::vector<double> losses;
    while (trainer.state().step < steps) losses.push_back(trainer.train_step().loss);
    trainer.save();
    return to_bytes(losses);
  });
}

std::string file_of(const TemporaryFolder& folder, int64_t step, const char* name) {
  return folder.read("checkpoints/step_0000000" + std::to_string(step) + "/" + name);
}

}  // namespace

TEST_CASE("a checkpoint does not depend on who shares the work", "[distributed]") {
  for (const char* dtype : {"f32", "bf16"}) {
    INFO(dtype);
    const TemporaryFolder plain, zero;
    train_and_save(plain.path.string(), 2, false, "none", 3, dtype);
    train_and_save(zero.path.string(), 2, true, "none", 3, dtype);
    for (const char* name : {"model.safetensors", "moments.safetensors", "state.json"}) {
      CHECK((file_of(plain, 3, name) == file_of(zero, 3, name)));
      CHECK(file_of(plain, 3, name).size() > 10);
    }
  }
}

TEST_CASE("training on two ranks goes on on one and then on four", "[distributed]") {
  const TemporaryFolder whole, parts;
  const RankResults unbroken = train_and_save(whole.path.string(), 1, false, "none", 9, "f64");
  const auto losses = [&](int ranks, bool zero, const char* resume, int64_t steps) {
    const RankResults results =
        train_and_save(parts.path.string(), ranks, zero, resume, steps, "f64");
    CHECK(all_equal(results));
    return from_bytes(results[0]);
  };
  std::vector<double> found;
  for (const auto& part :
       {losses(2, true, "none", 3), losses(1, false, "auto", 6), losses(4, true, "auto", 9)}) {
    found.insert(found.end(), part.begin(), part.end());
  }
  const std::vector<double> expected = from_bytes(unbroken[0]);
  REQUIRE(found.size() == 9);
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::abs(found[i] - expected[i]) <= twin_tolerance(Dtype::f64) * expected[i]);
  }
}

TEST_CASE("a stop on one rank ends all ranks with one checkpoint", "[distributed]") {
  const TemporaryFolder folder;
  struct StopAtThree : TrainObserver {
    void on_step(const StepReport& report) override { stop = report.step >= 3; }
    void on_checkpoint(const std::string& path) override { saved = path; }
    std::atomic<bool> stop{false};
    std::string saved;
  };
  const RankResults results = run_threads(2, [&](const Context& ctx, Communicator& communicator) {
    DataParallel replica(ctx, communicator, {true});
    Trainer trainer(ctx, small_run(folder.path.string()), replica);
    StopAtThree observer;
    const std::atomic<bool> never{false};
    trainer.run(observer, replica.rank() == 1 ? observer.stop : never);
    return observer.saved + " at " + std::to_string(trainer.state().step);
  });
  const std::string saved = folder.file("checkpoints/step_00000004");
  CHECK(results == RankResults(2, saved + " at 4"));
  verify_checkpoint(saved);
  CHECK(std::distance(fs::directory_iterator(folder.file("checkpoints")), {}) == 1);
}

TEST_CASE("ranks that would train different models or go on from different steps are refused",
          "[distributed]") {
  const TemporaryFolder folder;
  const auto start = [&](const std::function<RunConfig(int)>& config) {
    return run_threads(2, [&](const Context& ctx, Communicator& communicator) -> std::string {
      DataParallel replica(ctx, communicator);
      Trainer trainer(ctx, config(replica.rank()), replica);
      return "started";
    });
  };
  const RankResults models = start([&](int rank) {
    return small_run(folder.file("a"),
                     {rank == 0 ? "model.num_hidden_layers=1" : "model.num_hidden_layers=2"});
  });
  CHECK(models[0] ==
        "error: all ranks must train one model with the same options; rank 0 has others than rank "
        "1");
  train_and_save(folder.file("b"), 1, false, "none", 2, "f32");
  const RankResults steps = start([&](int rank) {
    RunConfig config = small_run(folder.file(rank == 0 ? "b" : "c"));
    config.train.resume = "auto";
    return config;
  });
  CHECK(steps[0].starts_with("error: train.resume: all replicas must continue from the same step"));
  CHECK(steps[1].starts_with("error: train.resume: all replicas must continue from the same step"));
}
