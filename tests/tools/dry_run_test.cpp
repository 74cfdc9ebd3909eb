#include "tools/dry_run.h"

#include "core/config_reader.h"
#include "support/catch.h"
#include "tools/random_tokens.h"
#include "train/trainer.h"

using namespace xtrain;

namespace {

RunConfig run_of(const std::vector<std::string>& settings) {
  ConfigReader reader;
  reader.add_file(XT_SOURCE_DIR "/configs/tiny.json");
  reader.set("train.batch_size=4");
  for (const std::string& setting : settings) reader.set(setting);
  RunConfig run = resolve_run_config(reader);
  forget_files(run.train);
  return run;
}

int64_t peak_of_training(const RunConfig& run) {
  const Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, random_tokens(run), alone);
  for (int step = 0; step < 2; ++step) CHECK_FALSE(trainer.train_step().skipped);
  return ctx.allocator->peak_bytes();
}

}  // namespace

TEST_CASE("a dry run predicts the memory of training within a twentieth", "[tools]") {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {},
           {"train.attention=flash", "train.dtype=bf16"},
           {"train.recompute=block", "train.attention=flash", "train.seq_len=64"},
           {"train.grad_accum_steps=2", "train.fused=false", "train.batch_size=2"},
           {"model.model_type=gpt2", "model.head_dim=32", "model.vocab_size=1000",
            "train.dtype=bf16"}}) {
    const RunConfig run = run_of(settings);
    INFO(settings.size() << " settings" << (settings.empty() ? "" : ": " + settings[0]));
    const double predicted = size_of_run(run, Device{}).peak_bytes;
    const double measured = peak_of_training(run);
    CHECK(predicted <= 1.05 * measured);
    CHECK(predicted >= 0.95 * measured);
  }
}

TEST_CASE("a dry run needs no GPU for one's memory, and counts what recorded steps keep",
          "[tools]") {
  const auto on_gpu = [](const std::vector<std::string>& settings) {
    return size_of_run(run_of(settings), Device{DeviceType::cuda});
  };
  const RunSize recorded = on_gpu({"train.dtype=bf16"});
  const RunSize plain = on_gpu({"train.dtype=bf16", "train.recorded=false"});
  CHECK(recorded.parameters == 886144);
  CHECK(recorded.tokens_per_step == 4 * 128);
  // Values in bf16; gradients, masters and both moments in f32.
  CHECK(recorded.state_bytes >= 18 * recorded.parameters);
  CHECK(recorded.state_bytes < 19 * recorded.parameters);
  CHECK(plain.state_bytes == recorded.state_bytes);
  CHECK(plain.peak_bytes < recorded.peak_bytes);
  CHECK(plain.peak_bytes > plain.state_bytes);
  CHECK(on_gpu({"train.recompute=block"}).peak_bytes < on_gpu({}).peak_bytes);
}

TEST_CASE("on a GPU a head of any vocabulary takes no more than a round one", "[tools]") {
  const auto on_gpu = [](const std::string& vocabulary, const std::string& tied) {
    return size_of_run(run_of({"train.dtype=bf16", "model.vocab_size=" + vocabulary,
                               "model.tie_word_embeddings=" + tied}),
                       Device{DeviceType::cuda});
  };
  const RunSize odd = on_gpu("1001", "true"), round = on_gpu("1008", "true");
  CHECK(odd.parameters == round.parameters - 7 * 128);
  // The arenas are equally long; the optimizer's table of pieces of 32 bytes need not be.
  CHECK(odd.state_bytes <= round.state_bytes);
  CHECK(odd.state_bytes >= round.state_bytes - 32);
  CHECK(odd.peak_bytes <= round.peak_bytes);
  CHECK(odd.peak_bytes >= round.peak_bytes - 32);
  // Only the head has rows of zeros behind it: the embedding's gradient is no product.
  const RunSize odd_apart = on_gpu("1001", "false"), round_apart = on_gpu("1008", "false");
  CHECK(odd_apart.state_bytes == round_apart.state_bytes - 18 * 7 * 128);
  CHECK(odd_apart.peak_bytes <= round_apart.peak_bytes);
}
