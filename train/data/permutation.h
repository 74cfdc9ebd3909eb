#pragma once
// A seeded shuffle of 0..n-1 that is computed element by element and stores nothing, so that it
// serves any number of windows and any process can ask for any element.
//
// A Feistel network on pairs (left, right) in [0, a) x [0, b), a * b >= n, with cycle walking for
// the few pairs beyond n: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002. Each
// round adds to one half a function of the other, which can be undone, so the whole is a bijection.

#include <cstdint>

namespace xtrain {

class Permutation {
 public:
  // n >= 1. `seed` and `stream` (an epoch, say) together select the shuffle.
  Permutation(uint64_t n, uint64_t seed, uint64_t stream);

  // The image of index < n.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t n_, a_, b_, key_;
};

}  // namespace xtrain
