// Targets that a token file masks: windows, training and validation.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/copy.h"
#include "core/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "train/data/token_bytes.h"
#include "train/data/token_file.h"
#include "train/small_run.h"

using namespace xtrain;

namespace {

constexpr int64_t kVocab = 50, kLength = 8;

std::string masked_file(const std::vector<int32_t>& ids, const std::vector<bool>& counts) {
  const auto count = static_cast<int32_t>(ids.size());
  return llmq_header({2, 4, count, kVocab, 1}) + packed(ids) + packed_bits(counts);
}

std::shared_ptr<const TokenSource> open(const std::string& path) {
  return std::make_shared<TokenFile>(MappedFile(path), "auto", kVocab);
}

// Ids 0..count-1 modulo the vocabulary; one in three counts.
std::vector<bool> thirds(int64_t count) {
  std::vector<bool> counts;
  for (int64_t i = 0; i < count; ++i) counts.push_back(i % 3 == 1);
  return counts;
}

RunConfig run_on(const TemporaryFolder& folder, const std::string& data,
                 const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all{"data.stories_count=24000", "model.vocab_size=50",
                               "data.train_files=" + data, "train.seq_len=8", "train.batch_size=2"};
  all.insert(all.end(), settings.begin(), settings.end());
  return small_run(folder.file("run"), all);
}

int64_t counted(const std::vector<int32_t>& targets) {
  return std::count_if(targets.begin(), targets.end(), [](int32_t id) { return id >= 0; });
}

}  // namespace

TEST_CASE("masks: windows pass them on, also over the borders of files and of slices", "[train]") {
  const TemporaryFolder folder;
  const auto ids = counting<int32_t>(20, kVocab);
  const std::vector<bool> counts = thirds(20);
  const auto masked = open(folder.write("masked.bin", masked_file(ids, counts)));
  const auto plain = open(folder.write("plain.bin", packed(counting<uint16_t>(20, kVocab))));
  const auto joined = std::make_shared<JoinedSource>(
      std::vector<std::shared_ptr<const TokenSource>>{plain, masked, plain});
  CHECK(joined->reader() == "tokens, raw uint16; tokens, headered int32 with masks (BIN.TOK)");
  const auto slice = std::make_shared<SlicedSource>(joined, 15, 45);  // 5, 20 and 5 tokens
  const Batch batch = ConsecutiveWindows(slice, 29).batch(0, 1);
  std::vector<int32_t> expected;
  for (int32_t i = 16; i < 45; ++i) {
    const bool counts_here = i < 20 || i >= 40 || counts[static_cast<size_t>(i - 20)];
    expected.push_back(counts_here ? i % 20 : -100);
  }
  CHECK(batch.targets == expected);
  CHECK(batch.inputs.front() == 15);
  CHECK(batch.inputs.back() == 3);
  CHECK(counted(batch.inputs) == 29);  // inputs are never masked
  CHECK_THROWS_AS(slice->mask_targets(29, std::span(expected).first(2)), Error);
}

TEST_CASE("masks: training counts what they leave, and only that", "[train]") {
  const TemporaryFolder folder;
  const auto ids = counting<int32_t>(400, kVocab);
  const std::string path = folder.write("t.bin", masked_file(ids, thirds(400)));
  const RunConfig run = run_on(folder, path, {"train.grad_accum_steps=2"});
  const Context ctx = cpu_context(1);
  Replica alone;
  Trainer trainer(ctx, run, alone);
  const ShuffledWindows windows(open(path), kLength, run.train.seed);
  int64_t tokens = 0;
  for (int64_t step = 0; step < 6; ++step) {
    tokens += counted(windows.batch(step * 4, 4).targets);
    CHECK(trainer.train_step().tokens == tokens);
  }
  CHECK(tokens > 50);
  CHECK(tokens < 6 * 4 * kLength / 2);
}

TEST_CASE("masks: a masked target has no loss and no gradient", "[train]") {
  const TemporaryFolder folder;
  const Context ctx = cpu_context(1);
  // A file of one window, whose last id is a target alone.
  const auto values = [&](int32_t last, bool last_counts) {
    std::vector<int32_t> ids = counting<int32_t>(kLength + 1, kVocab);
    std::vector<bool> counts(kLength + 1, true);
    ids.back() = last;
    counts.back() = last_counts;
    const std::string path = folder.write("t.bin", masked_file(ids, counts));
    return first_gradients(ctx, run_on(folder, path, {"train.batch_size=1"}));
  };
  CHECK(values(7, false) == values(31, false));
  CHECK(values(7, true) != values(31, true));
  CHECK(values(7, true) != values(7, false));
}

TEST_CASE("masks: a file of which nothing counts trains to no gradient", "[train]") {
  const TemporaryFolder folder;
  const Context ctx = cpu_context(1);
  const std::string path = folder.write(
      "t.bin", masked_file(counting<int32_t>(100, kVocab), std::vector<bool>(100, false)));
  RunConfig run = run_on(folder, path);
  for (const auto& values : first_gradients(ctx, run)) {
    CHECK(std::all_of(values.begin(), values.end(), [](double x) { return x == 0.0; }));
  }
  run.data.val_files = {path};
  Replica alone;
  Trainer trainer(ctx, run, alone);
  CHECK(trainer.train_step().tokens == 0);
  CHECK_FALSE(trainer.validation_loss().has_value());
}

TEST_CASE("masks: validation is the mean over what counts", "[train]") {
  const TemporaryFolder folder;
  const Context ctx = cpu_context(1);
  const int64_t count = 5 * kLength + 1;
  const std::string path =
      folder.write("t.bin", masked_file(counting<int32_t>(count, kVocab), thirds(count)));
  const std::string plain = folder.write("p.bin", packed(counting<uint16_t>(count, kVocab)));
  RunConfig run = run_on(folder, path, {"train.eval_steps=0"});
  run.data.val_files = {path};
  Replica alone;
  Trainer trainer(ctx, run, alone);
  const Batch all = ConsecutiveWindows(open(plain), kLength).batch(0, 5);
  const TokenBatch batch = token_batch(ctx, all.inputs, all.targets, 5);
  const std::vector<float> losses =
      to_host<float>(ctx, trainer.model().losses(ctx, batch, run.train.exec));
  double sum = 0.0;
  int64_t counts = 0;
  for (int64_t i = 0; i < 5 * kLength; ++i) {
    if ((i + 1) % 3 != 1) continue;
    sum += static_cast<double>(losses[static_cast<size_t>(i)]);
    ++counts;
  }
  const double mean = sum / static_cast<double>(counts);
  CHECK(std::abs(*trainer.validation_loss() - mean) <= tolerance(Dtype::f32, counts) * mean);
}
