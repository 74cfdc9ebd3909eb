#include "train/data/windows.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/rejection.h"
#include "support/temporary_folder.h"
#include "train/data/text_source.h"
#include "train/data/token_bytes.h"
#include "train/data/token_file.h"

namespace xtrain {
namespace {

// Tokens 0, 1, 2, ...: a window's first input is its offset.
std::shared_ptr<TokenFile> counting_source(const TemporaryFolder& folder, int64_t tokens) {
  const std::string path = folder.write("t.bin", packed(counting<uint16_t>(tokens, 65536)));
  return std::make_shared<TokenFile>(MappedFile(path), "raw_u16", 65536);
}

TEST_CASE("windows: full batches with shifted targets until the epoch wraps") {
  const TemporaryFolder folder;
  const ShuffledWindows windows(counting_source(folder, 1000), 64, 1);
  CHECK(windows.windows_per_epoch() == 15);  // seven batches of two, and one window
  for (int64_t step = 0; step < 20; ++step) {
    const Batch batch = windows.batch(2 * step, 2);
    REQUIRE(batch.inputs.size() == 2 * 64);
    REQUIRE(batch.targets.size() == 2 * 64);
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      const int32_t start = batch.inputs[i / 64 * 64];
      CHECK(start <= 935);
      CHECK(batch.inputs[i] == start + static_cast<int32_t>(i % 64));
      CHECK(batch.targets[i] == batch.inputs[i] + 1);
    }
  }
  CHECK(ShuffledWindows(counting_source(folder, 128), 64, 1).windows_per_epoch() == 1);
  CHECK(ShuffledWindows(counting_source(folder, 129), 64, 1).windows_per_epoch() == 2);
  CHECK(windows.epoch_of(14) == 0);
  CHECK(windows.epoch_of(15) == 1);
}

TEST_CASE("windows: an epoch covers the stream once, from another phase each time") {
  const TemporaryFolder folder;
  const auto source = counting_source(folder, 1000);
  const ShuffledWindows windows(source, 64, 1);
  std::set<int64_t> phases;
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < 15; ++i) starts.push_back(windows.start_of(epoch * 15 + i));
    CHECK_FALSE(std::is_sorted(starts.begin(), starts.end()));
    std::vector<int64_t> ranks;  // the order of the windows whatever the phase
    for (const int64_t start : starts) {
      ranks.push_back(std::count_if(starts.begin(), starts.end(),
                                    [&](int64_t other) { return other < start; }));
    }
    orders.insert(ranks);
    std::sort(starts.begin(), starts.end());
    const int64_t phase = starts[0];
    CHECK(phase < 64);
    for (int64_t i = 0; i < 15; ++i)
      CHECK(starts[size_t(i)] == std::min(phase + 64 * i, int64_t{935}));
    phases.insert(phase);
  }
  CHECK(phases.size() > 10);
  CHECK(orders.size() == 20);
}

// tests/tools/loss_curves_test.py has the same numbers for the order as Python programs compute it.
TEST_CASE("windows: the order is that of these numbers") {
  const TemporaryFolder folder;
  const ShuffledWindows windows(counting_source(folder, 1000), 64, 1);
  const std::vector<int64_t> expected{426, 874, 42,  554, 935, 298, 746, 362, 234, 810,
                                      490, 170, 682, 618, 106, 421, 293, 741, 165, 357,
                                      677, 805, 933, 549, 869, 101, 613, 37,  485, 229};
  for (size_t g = 0; g < expected.size(); ++g) {
    CHECK(windows.start_of(static_cast<int64_t>(g)) == expected[g]);
  }
}

TEST_CASE("windows: a batch depends on its place in the run alone") {
  const TemporaryFolder folder;
  const auto source = counting_source(folder, 5000);
  const ShuffledWindows windows(source, 16, 42);
  std::vector<int32_t> inputs, targets;  // of sequences 0..719, more than two epochs
  for (int64_t g = 0; g < 720; g += 12) {
    const Batch batch = windows.batch(g, 12);
    CHECK(batch.first_sequence == g);
    inputs.insert(inputs.end(), batch.inputs.begin(), batch.inputs.end());
    targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
  }
  for (const int64_t size : {1, 5, 8, 720}) {
    for (int64_t g = 720 - size; g >= 0; g -= size) {  // backwards, each by a sampler of its own
      const Batch batch = ShuffledWindows(source, 16, 42).batch(g, size);
      REQUIRE(std::equal(batch.inputs.begin(), batch.inputs.end(), inputs.begin() + g * 16));
      REQUIRE(std::equal(batch.targets.begin(), batch.targets.end(), targets.begin() + g * 16));
    }
  }
  CHECK(ShuffledWindows(source, 16, 43).batch(0, 12).inputs != windows.batch(0, 12).inputs);
}

TEST_CASE("windows: a source shorter than one window is rejected with what it holds and needs") {
  const TemporaryFolder folder;
  for (const int64_t tokens : {50, 64, 0}) {
    const auto source = counting_source(folder, tokens);
    const std::string expected = source->name() + ": holds " + std::to_string(tokens) +
                                 " tokens; one window of seq_len 64 needs 65";
    CHECK(rejection([&] { ShuffledWindows(source, 64, 1); }) == expected);
    CHECK(rejection([&] { ConsecutiveWindows(source, 64); }) == expected);
  }
}

TEST_CASE("windows: a source of exactly one window gives that window always") {
  const TemporaryFolder folder;
  const ShuffledWindows windows(counting_source(folder, 65), 64, 1);
  CHECK(windows.windows_per_epoch() == 1);
  for (int64_t g = 0; g < 5; ++g) {
    const Batch batch = windows.batch(g, 1);
    CHECK(batch.inputs == counting<int32_t>(64, 64));
    for (int32_t t = 0; t < 64; ++t) CHECK(batch.targets[size_t(t)] == t + 1);
  }
}

TEST_CASE("windows: a bad seq_len, batch size or place is an error") {
  const TemporaryFolder folder;
  const auto source = counting_source(folder, 100);
  CHECK(rejection([&] { ShuffledWindows(source, 0, 1); }) == "seq_len must be at least 1; got 0");
  CHECK_THROWS_AS(ShuffledWindows(source, 8, 1).batch(0, 0), Error);
  CHECK_THROWS_AS(ShuffledWindows(source, 8, 1).batch(-1, 1), Error);
  CHECK_THROWS_AS(ConsecutiveWindows(source, 8).batch(12, 1), Error);
}

TEST_CASE("windows: validation reads adjacent windows from the start and stops at the end") {
  const TemporaryFolder folder;
  const ConsecutiveWindows windows(counting_source(folder, 1000), 64);
  CHECK(windows.size() == 15);
  const Batch first = windows.batch(0, 4);
  CHECK(first.inputs == counting<int32_t>(256, 256));
  CHECK(first.targets.back() == 256);
  const Batch last = windows.batch(12, 4);  // only three are left
  CHECK(last.batch_size == 3);
  CHECK(last.inputs.size() == 3 * 64);
  CHECK(last.inputs.front() == 12 * 64);
  CHECK(last.targets.back() == 15 * 64);
  CHECK(windows.batch(12, 4).inputs == last.inputs);
}

}  // namespace
}  // namespace xtrain
