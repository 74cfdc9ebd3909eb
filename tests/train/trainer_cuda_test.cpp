#include <algorithm>
#include <fstream>
#include <limits>

#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "train/learn_by_heart.h"
#include "train/small_run.h"

using namespace xtrain;

namespace {

constexpr const char* kAttentions[] = {"composed", "flash"};

RunConfig run_with(const TemporaryFolder& folder, const char* attention, const char* dtype,
                   std::vector<std::string> settings = {}) {
  settings.insert(settings.begin(), {"model.dropout=0.1", "train.max_steps=50",
                                     std::string("train.attention=") + attention,
                                     std::string("train.dtype=") + dtype});
  return small_run(folder.path.string(), settings);
}

struct Reports final : TrainObserver {
  std::vector<StepReport> steps;
  void on_step(const StepReport& report) override { steps.push_back(report); }
};

// A whole run, to max_steps.
std::vector<StepReport> reports_of(Trainer& trainer) {
  Reports reports;
  const std::atomic<bool> stop{false};
  trainer.run(reports, stop);
  return reports.steps;
}

}  // namespace

TEST_CASE("on the GPU, 50 steps twice give the same bits", "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  for (const char* attention : kAttentions) {
    for (const char* dtype : {"f32", "bf16"}) {
      INFO(attention << " in " << dtype);
      RunConfig run = run_with(folder, attention, dtype);
      const Outcome first = train(ctx, run, 50);
      CHECK(train(ctx, run, 50) == first);
      CHECK(first.losses.back() < first.losses.front() - 0.5);
      run.train.seed += 1;
      CHECK(train(ctx, run, 2).weights != first.weights);
    }
  }
}

TEST_CASE("the GPU's losses are the CPU's, dropout included", "[cuda]") {
  const TemporaryFolder folder;
  for (const char* attention : kAttentions) {
    for (const auto& [name, dtype] : {std::pair{"f64", Dtype::f64}, std::pair{"f32", Dtype::f32}}) {
      INFO(attention << " in " << name);
      const RunConfig run = run_with(folder, attention, name);
      const auto losses_on = [&](const Context& ctx) { return train(ctx, run, 5).losses; };
      CHECK(relative_difference(losses_on(test_cuda_context()), losses_on(cpu_context(1))) <=
            twin_tolerance(dtype));
    }
  }
}

TEST_CASE("on the GPU, steps that are reported late are those that are waited for", "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  const RunConfig run = run_with(folder, "flash", "bf16", {"train.grad_accum_steps=3"});
  const Outcome expected = train(ctx, run, 50);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  const std::vector<StepReport> reports = reports_of(trainer);
  REQUIRE(reports.size() == 50);
  for (int64_t i = 0; i < 50; ++i) {
    CHECK(reports[i].step == i + 1);
    CHECK(reports[i].tokens == (i + 1) * 3 * 4 * 32);
    CHECK(reports[i].loss == expected.losses[i]);
    CHECK(reports[i].step_ms > 0.0);
  }
  CHECK(trainer.weights_checksum() == expected.weights);
}

TEST_CASE("on the GPU, validation and checkpoints leave training as it was", "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  const RunConfig plain = run_with(folder, "flash", "bf16");
  const Outcome expected = train(ctx, plain, 50);
  const RunConfig run =
      run_with(folder, "flash", "bf16",
               {"train.eval_interval=7", "train.eval_steps=0", "train.checkpoint_interval=9"});
  Replica alone;
  Trainer trainer(ctx, run, alone);
  const std::vector<StepReport> reports = reports_of(trainer);
  REQUIRE(reports.size() == 50);
  std::optional<double> best;
  for (const StepReport& report : reports) {
    CHECK(report.loss == expected.losses[report.step - 1]);
    CHECK(report.val_loss.has_value() == (report.step % 7 == 0 || report.step == 50));
    if (report.val_loss) best = std::min(best.value_or(1e9), *report.val_loss);
  }
  CHECK(trainer.weights_checksum() == expected.weights);
  CHECK(trainer.best_validation()->loss == best);
}

TEST_CASE("on the GPU, accumulated micro-steps equal one large batch", "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  for (const auto& [name, dtype] : {std::pair{"f64", Dtype::f64}, std::pair{"f32", Dtype::f32},
                                    std::pair{"bf16", Dtype::bf16}}) {
    const auto gradients = [&](int64_t batch) {
      return first_gradients(ctx, run_with(folder, "flash", name,
                                           {"train.batch_size=" + std::to_string(batch),
                                            "train.total_batch_size=256"}));
    };
    const auto whole = gradients(8);
    for (int64_t batch : {1, 2, 4}) {
      const auto parts = gradients(batch);
      for (size_t i = 0; i < whole.size(); ++i) {
        INFO(name << ", micro-batches of " << batch << ", tensor " << i);
        CHECK(relative_difference(parts[i], whole[i]) <= twin_tolerance(dtype));
      }
    }
  }
}

TEST_CASE("on the GPU, a run that recomputes ends with the same weights", "[cuda]") {
  const TemporaryFolder folder;
  for (const char* attention : kAttentions) {
    const auto outcome = [&](const char* recompute) {
      return train(test_cuda_context(),
                   run_with(folder, attention, "bf16",
                            {"train.grad_accum_steps=2", "model.num_hidden_layers=3",
                             std::string("train.recompute=") + recompute}),
                   3);
    };
    const Outcome expected = outcome("none");
    for (const char* recompute : {"activations", "attention", "block"}) {
      INFO(attention << ", recompute " << recompute);
      CHECK(outcome(recompute) == expected);
    }
  }
}

TEST_CASE("on the GPU, recorded steps have the bits of those that are not", "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  for (const char* attention : kAttentions) {
    for (const char* dtype : {"f32", "bf16"}) {
      for (const char* micro_steps : {"1", "2", "4"}) {
        for (const char* more : {"train.fused=false", "train.recompute=block"}) {
          INFO(attention << " in " << dtype << ", " << micro_steps << " micro-steps, " << more);
          RunConfig run = run_with(folder, attention, dtype,
                                   {std::string("train.grad_accum_steps=") + micro_steps, more});
          REQUIRE(run.train.recorded);
          const Outcome recorded = train(ctx, run, 6);
          run.train.recorded = false;
          CHECK(train(ctx, run, 6) == recorded);
        }
      }
    }
  }
}

TEST_CASE("on the GPU, a resumed run equals an unbroken one", "[cuda]") {
  const Context& ctx = test_cuda_context();
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    INFO(dtype);
    const TemporaryFolder folder;
    RunConfig run = run_with(folder, "flash", dtype);
    const Outcome unbroken = train(ctx, run, 10);
    train(ctx, run, 6, [&](Trainer& trainer) {
      if (trainer.state().step == 5) trainer.save();
    });
    run.train.resume = "auto";
    Replica alone;
    Trainer resumed(ctx, run, alone);
    CHECK(resumed.state().step == 5);
    for (int i = 5; i < 10; ++i) CHECK(resumed.train_step().loss == unbroken.losses[i]);
    CHECK(resumed.weights_checksum() == unbroken.weights);
  }
}

TEST_CASE("a checkpoint of either device resumes on the other", "[cuda]") {
  const Context cpu = cpu_context(1);
  const Context& gpu = test_cuda_context();
  for (const char* dtype : {"f32", "bf16"}) {
    for (const bool to_gpu : {true, false}) {
      INFO(dtype << (to_gpu ? ", from CPU to GPU" : ", from GPU to CPU"));
      const TemporaryFolder folder;
      RunConfig run = run_with(folder, "flash", dtype);
      Replica alone;
      Trainer first(to_gpu ? cpu : gpu, run, alone);
      for (int i = 0; i < 3; ++i) first.train_step();
      const std::string saved = first.save();
      run.train.resume = "auto";
      Trainer second(to_gpu ? gpu : cpu, run, alone);
      CHECK(second.weights_checksum() == first.weights_checksum());
      CHECK(second.state() == first.state());
      const auto file = [&](const std::string& name) {
        std::ifstream in(saved + "/" + name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
      };
      const std::string weights = file("model.safetensors"), moments = file("moments.safetensors");
      second.save();  // in the same place
      CHECK(file("model.safetensors") == weights);
      CHECK(file("moments.safetensors") == moments);
      CHECK(std::abs(second.train_step().loss - first.train_step().loss) <=
            twin_tolerance(run.train.exec.dtype));
    }
  }
}

TEST_CASE("on the GPU, every model kind learns one batch by heart and writes it down again",
          "[cuda]") {
  check_every_kind_learns_by_heart(test_cuda_context());
}

TEST_CASE("on the GPU, a gradient that is not finite changes nothing, and ten end the run",
          "[cuda]") {
  const TemporaryFolder folder;
  const Context& ctx = test_cuda_context();
  Replica alone;
  Trainer trainer(ctx, run_with(folder, "flash", "bf16"), alone);
  trainer.train_step();
  Parameter& p = *trainer.model().parameters().find("model.norm.weight");
  const Tensor kept = zeros(ctx, p.shape, p.value.dtype());
  copy(ctx, p.value, kept);
  fill(ctx, p.value, std::numeric_limits<double>::quiet_NaN());
  const std::string before = trainer.weights_checksum();
  for (int i = 0; i < 9; ++i) CHECK(trainer.train_step().skipped);
  CHECK(trainer.weights_checksum() == before);
  copy(ctx, kept, p.value);
  CHECK_FALSE(trainer.train_step().skipped);
  CHECK(trainer.weights_checksum() != before);
  fill(ctx, p.value, std::numeric_limits<double>::quiet_NaN());
  Reports reports;
  const std::atomic<bool> stop{false};
  CHECK_THROWS_WITH(trainer.run(reports, stop),
                    "training has diverged: the gradient of 10 steps in a row is not finite; use a "
                    "smaller learning rate");
  CHECK(reports.steps.size() == 9);
}
