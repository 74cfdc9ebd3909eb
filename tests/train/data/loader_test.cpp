#include "train/data/loader.h"

#include "core/error.h"
#include "support/catch.h"

namespace xtrain {
namespace {

// Tokens 0, 1, 2, ..., of which those from `broken` on cannot be read.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(int64_t size, int64_t broken = INT64_MAX)
      : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<int32_t> out) const override {
    const int64_t end = offset + static_cast<int64_t>(out.size());
    check_input(end <= broken_, "token ", broken_, " cannot be read");
    for (int64_t i = offset; i < end; ++i) out[i - offset] = static_cast<int32_t>(i);
  }
  std::string name() const override { return "counting"; }
  std::string reader() const override { return "counting"; }

 private:
  int64_t size_, broken_;
};

constexpr int64_t kBatch = 3, kLength = 8;

struct Uploaded {
  Tensor tokens, first;
  explicit Uploaded(const Context& ctx)
      : tokens(empty(ctx, {2, kBatch, kLength}, Dtype::i32)), first(empty(ctx, {1}, Dtype::i64)) {}
};

}  // namespace

TEST_CASE("loader: the batches of a rank come in the order of the run", "[train]") {
  const Context ctx = cpu_context(1);
  const ShuffledWindows windows(std::make_shared<CountingSource>(500), kLength, 1);
  const int64_t start = 12, ranks = 2, rank = 1;
  BatchLoader loader(ctx, windows, start + rank * kBatch, kBatch, ranks * kBatch);
  Uploaded got(ctx);
  for (int64_t n = 0; n < 40; ++n) {
    loader.upload_next(ctx, got.tokens, got.first);
    const int64_t first = start + (n * ranks + rank) * kBatch;
    CHECK(to_host<int64_t>(ctx, got.first)[0] == first);
    const Batch expected = windows.batch(first, kBatch);
    const std::vector<int32_t> tokens = to_host<int32_t>(ctx, got.tokens);
    CHECK(std::equal(expected.inputs.begin(), expected.inputs.end(), tokens.begin()));
    CHECK(std::equal(expected.targets.begin(), expected.targets.end(),
                     tokens.begin() + kBatch * kLength));
  }
}

TEST_CASE("loader: a batch that cannot be read is an error in its place, and stays one",
          "[train]") {
  const Context ctx = cpu_context(1);
  const ShuffledWindows windows(std::make_shared<CountingSource>(500, 400), kLength, 1);
  int64_t readable = 0;
  const auto fits = [&](int64_t batch) {
    for (int64_t row = 0; row < kBatch; ++row) {
      if (windows.start_of(batch * kBatch + row) + kLength + 1 > 400) return false;
    }
    return true;
  };
  while (fits(readable)) ++readable;
  BatchLoader loader(ctx, windows, 0, kBatch, kBatch);
  Uploaded got(ctx);
  for (int64_t n = 0; n < readable; ++n) loader.upload_next(ctx, got.tokens, got.first);
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH(loader.upload_next(ctx, got.tokens, got.first), "token 400 cannot be read");
  }
}

TEST_CASE("loader: ends while its thread reads, waits or has failed", "[train]") {
  const Context ctx = cpu_context(1);
  const ShuffledWindows whole(std::make_shared<CountingSource>(500), kLength, 1);
  const ShuffledWindows broken(std::make_shared<CountingSource>(500, 0), kLength, 1);
  for (int i = 0; i < 50; ++i) {
    for (const ShuffledWindows* windows : {&whole, &broken}) {
      const BatchLoader unused(ctx, *windows, 0, kBatch, kBatch);
    }
    BatchLoader used(ctx, whole, 0, kBatch, kBatch);
    Uploaded got(ctx);
    for (int n = 0; n < i % 7; ++n) used.upload_next(ctx, got.tokens, got.first);
  }
}

}  // namespace xtrain
