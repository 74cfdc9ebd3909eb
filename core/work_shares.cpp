#include "core/work_shares.h"

#include <algorithm>

namespace xtrain {
namespace {

constexpr int64_t kPieces = 64;  // of a share at most: enough to even out, and few to count

// Iterations of a piece. Alone, a thread shares with nobody.
int64_t piece_of(int64_t count, int threads) {
  const int64_t most = threads == 1 ? 1 : kPieces * threads;
  return std::max<int64_t>(1, (count + most - 1) / most);
}

constexpr uint64_t packed(uint64_t first, uint64_t end) {
  return first << 32 | end;
}

}  // namespace

WorkShares::WorkShares(int64_t count, int threads)
    : count_(count), piece_(piece_of(count, threads)), shares_(static_cast<size_t>(threads)) {
  const int64_t pieces = (count + piece_ - 1) / piece_;
  for (int t = 0; t < threads; ++t) {
    shares_[t].pieces.store(packed(pieces * t / threads, pieces * (t + 1) / threads),
                            std::memory_order_relaxed);
  }
}

bool WorkShares::take(int thread, int64_t& begin, int64_t& end) {
  int64_t piece = 0;
  bool found = take_piece(shares_[thread], From::front, piece);
  for (size_t other = 1; !found && other < shares_.size(); ++other) {
    found = take_piece(shares_[(thread + other) % shares_.size()], From::back, piece);
  }
  if (!found) return false;
  begin = piece * piece_;
  end = std::min(count_, begin + piece_);
  return true;
}

// Relaxed: a piece carries no data, and the end of the parallel region orders what bodies wrote.
// The first only grows and the end only falls, so a value never comes back.
bool WorkShares::take_piece(Share& share, From from, int64_t& piece) {
  uint64_t pieces = share.pieces.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t first = pieces >> 32, end = pieces & 0xffffffff;
    if (first >= end) return false;
    const bool front = from == From::front;
    const uint64_t rest = front ? packed(first + 1, end) : packed(first, end - 1);
    if (share.pieces.compare_exchange_weak(pieces, rest, std::memory_order_relaxed)) {
      piece = static_cast<int64_t>(front ? first : end - 1);
      return true;
    }
  }
}

}  // namespace xtrain
