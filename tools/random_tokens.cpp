#include "tools/random_tokens.h"

#include "core/error.h"
#include "core/random.h"

namespace xtrain {
namespace {

class RandomTokens final : public TokenSource {
 public:
  RandomTokens(int64_t vocab_size, int64_t size) : vocab_size_(vocab_size), size_(size) {}

  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<int32_t> out) const override {
    check_range(*this, offset, static_cast<int64_t>(out.size()));
    const RandomStream stream = random_stream(1, 0, 0);
    for (int32_t& id : out) {
      id = static_cast<int32_t>(random_below(stream, 0, offset++, vocab_size_));
    }
  }
  std::string name() const override { return "random tokens"; }
  std::string reader() const override { return name(); }

 private:
  const int64_t vocab_size_, size_;
};

}  // namespace

Data random_tokens(const RunConfig& run) {
  constexpr int64_t kBatches = 64;
  const int64_t vocab_size = run.model.vocab_size;
  check_input(vocab_size > 0, "model.vocab_size must be given where there is no data; got 0");
  Data data;
  data.train = std::make_shared<RandomTokens>(
      vocab_size, kBatches * run.train.batch_size * run.train.seq_len + 1);
  data.vocabulary = std::make_shared<Vocabulary>(Vocabulary::ids(vocab_size));
  return data;
}

void forget_files(TrainConfig& config) {
  config.resume = "none";
  config.init = "";
  config.out_dir = "/dev/null";
}

}  // namespace xtrain
