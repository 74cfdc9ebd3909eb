#include "train/data/windows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "train/data/permutation.h"

namespace xtrain {
namespace {

constexpr uint64_t kPhaseSite = 0x7068617365;  // sets these draws apart from others of the seed

// The number of windows, or an error if there is none.
int64_t count_windows(const TokenSource& source, int64_t seq_len) {
  check_input(seq_len >= 1, "seq_len must be at least 1; got ", seq_len);
  check_input(source.size() > seq_len, source.name(), ": holds ", source.size(),
              " tokens; one window of seq_len ", seq_len, " needs ", seq_len + 1);
  return (source.size() - 1) / seq_len;
}

template <class StartOf>
Batch read_batch(const TokenSource& source, int64_t first, int64_t batch_size, int64_t seq_len,
                 const StartOf& start_of) {
  const size_t width = static_cast<size_t>(seq_len);
  Batch batch{batch_size, seq_len, first, {}, {}};
  batch.inputs.reserve(static_cast<size_t>(batch_size) * width);
  batch.targets.reserve(static_cast<size_t>(batch_size) * width);
  std::vector<int32_t> window(width + 1);
  for (int64_t row = 0; row < batch_size; ++row) {
    const int64_t start = start_of(first + row);
    source.read(start, window);
    batch.inputs.insert(batch.inputs.end(), window.begin(), window.end() - 1);
    source.mask_targets(start + 1, std::span(window).subspan(1));
    batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
  }
  return batch;
}

}  // namespace

ShuffledWindows::ShuffledWindows(std::shared_ptr<const TokenSource> source, int64_t seq_len,
                                 uint64_t seed)
    : source_(std::move(source)),
      seq_len_(seq_len),
      seed_(seed),
      windows_(count_windows(*source_, seq_len)) {}

int64_t ShuffledWindows::start_of(int64_t sequence) const {
  check(sequence >= 0, "windows: the sequence must not be negative; got ", sequence);
  const int64_t epoch = epoch_of(sequence);
  const uint32_t drawn = random_stream(seed_, epoch, kPhaseSite).word(0, 0);
  const int64_t phase = static_cast<int64_t>(drawn) % seq_len_;
  const Permutation shuffle(static_cast<uint64_t>(windows_), seed_, static_cast<uint64_t>(epoch));
  const auto window = static_cast<int64_t>(shuffle(static_cast<uint64_t>(sequence % windows_)));
  return std::min(phase + window * seq_len_, source_->size() - 1 - seq_len_);
}

Batch ShuffledWindows::batch(int64_t first_sequence, int64_t batch_size) const {
  check(batch_size >= 1, "windows: batch_size must be at least 1; got ", batch_size);
  return read_batch(*source_, first_sequence, batch_size, seq_len_,
                    [&](int64_t sequence) { return start_of(sequence); });
}

ConsecutiveWindows::ConsecutiveWindows(std::shared_ptr<const TokenSource> source, int64_t seq_len)
    : source_(std::move(source)), seq_len_(seq_len), windows_(count_windows(*source_, seq_len)) {}

Batch ConsecutiveWindows::batch(int64_t first_window, int64_t batch_size) const {
  check(batch_size >= 1, "windows: batch_size must be at least 1; got ", batch_size);
  check(first_window >= 0 && first_window < windows_, "windows: the first must lie in 0..",
        windows_ - 1, "; got ", first_window);
  return read_batch(*source_, first_window, std::min(batch_size, windows_ - first_window), seq_len_,
                    [&](int64_t window) { return window * seq_len_; });
}

}  // namespace xtrain
