#pragma once
// Batches of windows cut from a token source. A window is seq_len inputs and as many targets, the
// inputs shifted by one, so it reads seq_len + 1 tokens. A target that the source masks is
// kIgnoreIndex.

#include <cstdint>
#include <memory>
#include <vector>

#include "train/data/token_source.h"

namespace xtrain {

struct Batch {
  int64_t batch_size = 0, seq_len = 0;
  int64_t first_sequence = 0;            // number of the first row's window in the order of the run
  std::vector<int32_t> inputs, targets;  // [batch_size, seq_len] each
};

// The training order. Epoch after epoch, the stream is cut into (tokens - 1) / seq_len adjacent
// windows from a random phase in 0..seq_len-1 on, and these come in a random order; a last window
// that the phase pushes over the end is moved back to end with the stream.
//
// Sequence g = 0, 1, 2, ... of the run is a function of (source, seq_len, seed, g) alone. A batch
// is any range of sequences, so a run continues at another batch size or number of processes from
// the count of sequences that it has seen, and there is no state to save.
class ShuffledWindows {
 public:
  // Throws InputError if the source cannot fill one window, naming it, the tokens it holds and
  // needs.
  ShuffledWindows(std::shared_ptr<const TokenSource> source, int64_t seq_len, uint64_t seed);

  int64_t seq_len() const { return seq_len_; }
  int64_t windows_per_epoch() const { return windows_; }
  int64_t epoch_of(int64_t sequence) const { return sequence / windows_; }
  int64_t start_of(int64_t sequence) const;  // offset of its first input in the source
  Batch batch(int64_t first_sequence, int64_t batch_size) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  int64_t seq_len_;
  uint64_t seed_;
  int64_t windows_;
};

// The validation order: adjacent windows from the start of the stream, the same each time. There
// are size() of them and no more; nothing is repeated or padded.
class ConsecutiveWindows {
 public:
  ConsecutiveWindows(std::shared_ptr<const TokenSource> source, int64_t seq_len);

  int64_t size() const { return windows_; }

  // Windows first .. first + batch_size - 1, fewer where the stream ends (see Batch::batch_size);
  // at least one must exist.
  Batch batch(int64_t first_window, int64_t batch_size) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  int64_t seq_len_;
  int64_t windows_;
};

}  // namespace xtrain
