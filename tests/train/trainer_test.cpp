#include "train/trainer.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "support/catch.h"
#include "support/op_tests.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "train/small_run.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

Outcome train(const RunConfig& run, int64_t steps,
              const std::function<void(Trainer&)>& before_step = {}) {
  return train(cpu_context(static_cast<int>(run.train.threads)), run, steps, before_step);
}

}  // namespace

TEST_CASE("training learns, and validation leaves it as it was", "[train]") {
  const TemporaryFolder folder;
  for (const char* attention : {"composed", "flash"}) {
    INFO(attention);
    const RunConfig run = small_run(
        folder.path.string(), {"model.dropout=0.1", std::string("train.attention=") + attention});
    const Outcome plain = train(run, 20);
    CHECK(plain.losses.back() < plain.losses.front() - 0.5);
    std::vector<double> validations;
    const Outcome validated = train(run, 20, [&](Trainer& trainer) {
      validations.push_back(trainer.validation_loss().value());
      CHECK(trainer.validation_loss() == validations.back());
    });
    CHECK(validated == plain);
    CHECK(validations.back() < validations.front() - 0.5);
  }
}

TEST_CASE("the same run gives the same bits, on any number of threads", "[train]") {
  const TemporaryFolder folder;
  for (const char* attention : {"composed", "flash"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      INFO(attention << " in " << dtype);
      RunConfig run = small_run(folder.path.string(),
                                {"model.dropout=0.1", std::string("train.attention=") + attention,
                                 std::string("train.dtype=") + dtype});
      CHECK(train(run, 20) == train(run, 20));
      const Outcome expected = train(run, 5);
      for (int64_t threads : {2, 8}) {
        run.train.threads = threads;
        CHECK(train(run, 5) == expected);
      }
      run.train.seed += 1;
      CHECK(train(run, 5).weights != expected.weights);
    }
  }
}

TEST_CASE("accumulated micro-steps equal one large batch", "[train]") {
  const TemporaryFolder folder;
  const Context ctx = cpu_context(1);
  const auto run_with = [&](int64_t batch, const char* dtype) {
    return small_run(folder.path.string(),
                     {"train.batch_size=" + std::to_string(batch), "train.total_batch_size=256",
                      std::string("train.dtype=") + dtype, "model.dropout=0.1"});
  };
  for (const auto& [dtype, limit] :
       {std::pair{"f64", 1e-12}, std::pair{"f32", 1e-6}, std::pair{"bf16", 1e-2}}) {
    const auto whole = first_gradients(ctx, run_with(8, dtype));
    for (int64_t batch : {1, 2, 4}) {
      const auto parts = first_gradients(ctx, run_with(batch, dtype));
      for (size_t i = 0; i < whole.size(); ++i) {
        INFO(dtype << ", micro-batches of " << batch << ", tensor " << i);
        CHECK(relative_difference(parts[i], whole[i]) <= limit);
      }
    }
  }
}

TEST_CASE("a run that recomputes ends with the same weights", "[train]") {
  const TemporaryFolder folder;
  for (const char* attention : {"composed", "flash"}) {
    for (const char* dropout : {"0", "0.1"}) {
      const auto outcome = [&](const char* recompute) {
        return train(small_run(folder.path.string(),
                               {"train.grad_accum_steps=2", "model.num_hidden_layers=3",
                                std::string("model.dropout=") + dropout,
                                std::string("train.attention=") + attention,
                                std::string("train.recompute=") + recompute}),
                     3);
      };
      const Outcome expected = outcome("none");
      for (const char* recompute : {"activations", "attention", "block"}) {
        INFO(attention << ", dropout " << dropout << ", recompute " << recompute);
        CHECK(outcome(recompute) == expected);
      }
    }
  }
}

TEST_CASE("a resumed run equals an unbroken one", "[train]") {
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    INFO(dtype);
    const TemporaryFolder folder;
    RunConfig run = small_run(
        folder.path.string(),
        {"model.dropout=0.1", "train.lr_schedule=constant", std::string("train.dtype=") + dtype});
    const Outcome unbroken = train(run, 10);
    std::string saved;
    train(run, 6, [&](Trainer& trainer) {
      if (trainer.state().step == 5) saved = trainer.save();
    });
    CHECK(fs::path(saved).filename() == "step_00000005");
    run.train.resume = "auto";
    Context ctx = cpu_context(1);
    Replica alone;
    Trainer resumed(ctx, run, alone);
    CHECK(resumed.resumed_from() == saved);
    CHECK(resumed.state().step == 5);
    CHECK(resumed.state().sequences == 20);
    for (int i = 5; i < 10; ++i) CHECK(resumed.train_step().loss == unbroken.losses[i]);
    CHECK(resumed.weights_checksum() == unbroken.weights);
    run.train.batch_size = 2;  // the order goes on at another batch size
    Trainer smaller(ctx, run, alone);
    CHECK(smaller.state().sequences == 20);
  }
}

TEST_CASE("an out-dir that holds a run is refused unless it is resumed", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.path.string(), {"train.max_steps=2"});
  Context ctx = cpu_context(1);
  Replica alone;
  TrainObserver silent;
  const std::atomic<bool> stop{false};
  Trainer(ctx, run, alone).run(silent, stop);
  CHECK(rejection([&] { Trainer(ctx, run, alone); }) ==
        "train.out_dir " + folder.path.string() +
            " already holds a run; continue it with --resume auto, or choose another --out-dir");
  run.train.resume = "auto";
  run.train.max_steps = 4;
  Trainer resumed(ctx, run, alone);
  CHECK(resumed.state().step == 2);
  resumed.run(silent, stop);
  std::ifstream metrics(folder.path.string() + "/metrics.jsonl");
  std::string line;
  int lines = 0;
  while (std::getline(metrics, line)) {
    ++lines;
    CHECK(line.starts_with("{\"step\":" + std::to_string(lines) + ","));
  }
  CHECK(lines == 4);
}

TEST_CASE("a validation of 0 steps reads all validation tokens", "[train]") {
  const TemporaryFolder folder;
  const auto loss_of = [&](const char* steps) {
    const RunConfig run =
        small_run(folder.path.string(), {std::string("train.eval_steps=") + steps});
    Replica alone;
    Trainer trainer(cpu_context(1), run, alone);
    return trainer.validation_loss();
  };
  CHECK(loss_of("0") == loss_of("1000000"));
  CHECK(loss_of("0") != loss_of("2"));
}

TEST_CASE("the best validation is the least of all that metrics.jsonl holds", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.path.string(), {"train.eval_interval=2", "train.max_steps=6"});
  struct Best : TrainObserver {
    void on_step(const StepReport& report) override {
      if (!report.val_loss || *report.val_loss >= loss) return;
      loss = *report.val_loss;
      step = report.step;
    }
    double loss = 1e9;
    int64_t step = 0;
  } best;
  Replica alone;
  const std::atomic<bool> stop{false};
  const auto check_best = [&](double learning_rate) {
    run.train.learning_rate = learning_rate;
    Trainer trainer(cpu_context(1), run, alone);
    CHECK_FALSE(trainer.best_validation());
    trainer.run(best, stop);
    REQUIRE(trainer.best_validation());
    CHECK(trainer.best_validation()->loss == best.loss);
    CHECK(trainer.best_validation()->step == best.step);
  };
  check_best(0.003);
  CHECK(best.step == 6);
  run.train.resume = "auto";
  run.train.max_steps = 12;
  check_best(1.0);  // only makes it worse
  CHECK(best.step == 6);
}

TEST_CASE("a stop ends training with the next step, saved", "[train]") {
  const TemporaryFolder folder;
  const RunConfig run = small_run(folder.path.string());
  Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  std::atomic<bool> stop{false};
  struct StopAtThree : TrainObserver {
    explicit StopAtThree(std::atomic<bool>& s) : stop_(s) {}
    void on_step(const StepReport& report) override { stop_ = report.step == 3; }
    void on_checkpoint(const std::string& path) override { saved = path; }
    std::atomic<bool>& stop_;
    std::string saved;
  } observer(stop);
  trainer.run(observer, stop);
  CHECK(trainer.state().step == 4);
  CHECK(fs::path(observer.saved).filename() == "step_00000004");
  verify_checkpoint(observer.saved);
}

TEST_CASE("damaged and half-written checkpoints are passed over", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.path.string(), {"train.keep_latest=0"});
  Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  std::vector<std::string> saved;
  for (int i = 0; i < 3; ++i) {
    trainer.train_step();
    saved.push_back(trainer.save());
  }
  const std::string checkpoints = folder.path.string() + "/checkpoints";
  fs::create_directories(checkpoints + "/step_00000009.partial");
  std::ofstream(checkpoints + "/step_00000008") << "";  // a file, not a folder
  fs::create_directories(checkpoints + "/step_00000007");
  CHECK(newest_checkpoint(checkpoints) == saved[2]);
  fs::resize_file(saved[2] + "/moments.safetensors", 0);
  CHECK(newest_checkpoint(checkpoints) == saved[1]);
  // A model needs no moments.
  CHECK(model_path(folder.path.string()) == saved[2]);
  CHECK(model_path(saved[2]) == saved[2]);
  CHECK(rejection([&] {
          verify_checkpoint(saved[2]);
        }).starts_with("checkpoint: " + saved[2] + "/moments.safetensors is damaged"));
  {
    std::fstream file(saved[1] + "/model.safetensors", std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  CHECK(newest_checkpoint(checkpoints) == saved[0]);
  CHECK(rejection([&] {
          model_path(saved[1]);
        }).starts_with("checkpoint: " + saved[1] + "/model.safetensors is damaged"));
  fs::remove(saved[2] + "/vocabulary.json");
  CHECK(model_path(folder.path.string()) == saved[0]);
  run.train.resume = saved[1];
  CHECK(rejection([&] {
          Trainer(ctx, run, alone);
        }).starts_with("checkpoint: " + saved[1] + "/model.safetensors is damaged"));
  run.train.resume = "auto";
  CHECK(Trainer(ctx, run, alone).state().step == 1);
  fs::remove(saved[0] + "/manifest.json");
  CHECK(newest_checkpoint(checkpoints).empty());
  CHECK(rejection([&] { model_path(folder.path.string()); }) ==
        "every checkpoint in " + checkpoints + " is damaged");
  CHECK(rejection([&] { Trainer(ctx, run, alone); }) ==
        "train.resume auto: every checkpoint in " + checkpoints +
            " is damaged; give a path, or start in another --out-dir");
}

TEST_CASE("old checkpoints are removed", "[train]") {
  const TemporaryFolder folder;
  const RunConfig run = small_run(folder.path.string(), {"train.keep_latest=2"});
  Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  for (int i = 0; i < 4; ++i) {
    trainer.train_step();
    trainer.save();
  }
  trainer.save();  // the same step again replaces it
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path.string() + "/checkpoints")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step_00000003", "step_00000004"});
}

TEST_CASE("a resumed run is not mixed with another one or with its own later steps", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.file("a"), {"train.keep_latest=0"});
  const Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  std::vector<std::string> saved;
  for (int i = 0; i < 3; ++i) {
    trainer.train_step();
    saved.push_back(trainer.save());
  }
  run.train.resume = saved[0];
  const std::string used =
      " already holds a run; continue it with --resume auto, or choose another";
  CHECK(rejection([&] { Trainer(ctx, run, alone); }).find(used) != std::string::npos);
  run.train.out_dir = folder.file("b");
  Trainer branch(ctx, run, alone);
  CHECK(branch.state().step == 1);
  branch.save();
  run.train.resume = saved[2];
  CHECK(rejection([&] { Trainer(ctx, run, alone); }).find(used) != std::string::npos);

  // A damaged later checkpoint is passed over, and does not push out what is saved after it.
  fs::resize_file(saved[2] + "/moments.safetensors", 0);
  run.train.out_dir = folder.file("a");
  run.train.resume = "auto";
  run.train.keep_latest = 1;
  Trainer resumed(ctx, run, alone);
  CHECK(resumed.state().step == 2);
  CHECK(newest_checkpoint(folder.file("a/checkpoints")) == resumed.save());
}

TEST_CASE("a run is not resumed on characters with other ids", "[train]") {
  const TemporaryFolder folder;
  const std::string path = folder.write("text.txt", std::string(700, 'a') + std::string(700, 'b'));
  RunConfig run = small_run(folder.file("run"), {"data.source=chars"});
  run.data.train_files = {path};
  const Context ctx = cpu_context(1);
  Replica alone;
  const std::string saved = Trainer(ctx, run, alone).save();
  run.train.resume = "auto";
  CHECK(Trainer(ctx, run, alone).resumed_from() == saved);
  folder.write("text.txt", std::string(700, 'a') + std::string(700, 'c'));
  CHECK(rejection([&] { Trainer(ctx, run, alone); }) ==
        saved +
            "/vocabulary.json: the resumed run's vocabulary must be that of the data; the data "
            "has another");
}

TEST_CASE("a prompt that the vocabulary lacks is refused before training", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.file("run"), {"data.source=chars", "train.prompt=z"});
  run.data.train_files = {folder.write("text.txt", std::string(1000, 'a'))};
  Replica alone;
  CHECK(rejection([&] { Trainer(cpu_context(1), run, alone); }) ==
        "train.prompt: the character \"z\" at byte 0 is not one of the 1 in the vocabulary");
}

TEST_CASE("a checkpoint of another model is refused by name", "[train]") {
  const TemporaryFolder folder;
  RunConfig run = small_run(folder.path.string());
  Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  trainer.train_step();
  const std::string saved = trainer.save();
  RunConfig wider = small_run(folder.path.string(), {"model.intermediate_size=64"});
  wider.train.resume = saved;
  CHECK(rejection([&] { Trainer(ctx, wider, alone); }) ==
        "checkpoint: " + saved +
            "/model.safetensors holds model.layers.0.mlp.gate_up_proj.weight with shape (96, 32); "
            "the model needs (128, 32)");
  run.train.resume = saved;
  RunConfig turned = run;
  turned.model.rope_theta = 5;
  CHECK(rejection([&] { Trainer(ctx, turned, alone); }) ==
        saved +
            "/config.json: the resumed run's model must be the checkpoint's; compare their "
            "sections \"model\"");
  run.train.seed = 5;
  CHECK(rejection([&] { Trainer(ctx, run, alone); }) ==
        "train.seed must be that of the resumed run, 1337; got 5");
  run.train.seed = 1337;
  run.train.seq_len = 16;
  CHECK(rejection([&] { Trainer(ctx, run, alone); }) ==
        "train.seq_len must be that of the resumed run, 32; got 16");
}

TEST_CASE("training that has diverged ends instead of going on", "[train]") {
  const TemporaryFolder folder;
  const RunConfig run = small_run(folder.path.string());
  Replica alone;
  Trainer trainer(cpu_context(1), run, alone);
  Parameter& p = *trainer.model().parameters().find("model.norm.weight");
  p.value.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 9; ++i) CHECK(trainer.train_step().skipped);
  CHECK_THROWS_WITH(trainer.train_step(),
                    "training has diverged: the gradient of 10 steps in a row is not finite; use a "
                    "smaller learning rate");
}

TEST_CASE("a gradient that is not finite leaves weights and moments as they were", "[train]") {
  const TemporaryFolder folder;
  const RunConfig run = small_run(folder.path.string());
  Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  trainer.train_step();
  Parameter& p = *trainer.model().parameters().find("model.norm.weight");
  const float kept = p.value.data<float>()[0];
  p.value.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const std::string broken = trainer.weights_checksum();
  const auto moments = [&] {
    std::ifstream file(trainer.save() + "/moments.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = moments();
  const StepReport report = trainer.train_step();
  CHECK(report.skipped);
  CHECK(trainer.weights_checksum() == broken);
  CHECK(moments() == before);
  p.value.mutable_data<float>()[0] = kept;
  CHECK_FALSE(trainer.train_step().skipped);
}
