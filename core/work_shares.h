#pragma once
// How the iterations of a loop are handed to threads: every thread has a share of consecutive ones,
// which it works through in order, and when that is done takes over what others have not begun,
// from the far ends of their shares. Cores are not equally fast, and lose time to other programs,
// and a loop ends only when all of it is done. As long as they keep step, a thread meets the same
// part of the data in each loop, where its own cache holds it.

#include <atomic>
#include <cstdint>
#include <vector>

namespace xtrain {

class WorkShares {
 public:
  // Of iterations [0, count), for so many threads.
  WorkShares(int64_t count, int threads);

  // Takes iterations [begin, end) for a thread of [0, threads); false when nothing is left to
  // begin.
  bool take(int thread, int64_t& begin, int64_t& end);

 private:
  // Consecutive pieces that nobody has begun: the first one in the high half, the one behind the
  // last in the low half. A cache line of its own, since its thread alone writes it in most loops.
  struct alignas(64) Share {
    std::atomic<uint64_t> pieces{0};
  };
  enum class From : uint8_t { front, back };
  static bool take_piece(Share& share, From from, int64_t& piece);

  int64_t count_, piece_;  // iterations, of all and of a piece
  std::vector<Share> shares_;
};

}  // namespace xtrain
