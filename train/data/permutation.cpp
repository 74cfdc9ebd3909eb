#include "train/data/permutation.h"

#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace xtrain {
namespace {

constexpr uint64_t kRounds = 8;
constexpr uint64_t kSite = 0x7065726d75746174;  // sets these draws apart from others of the seed

uint64_t draw(uint64_t key, uint64_t half, uint64_t round) {
  const Philox4 words = philox4x32(key, half, round);
  return (static_cast<uint64_t>(words.word[1]) << 32) | words.word[0];
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t stream)
    : n_(n), key_(random_stream(seed, static_cast<int64_t>(stream), kSite).key) {
  check(n >= 1 && n < (uint64_t{1} << 62), "permutation: n must lie in 1..2^62-1; got ", n);
  // Any a and b with a * b >= n would do; a rounding error of sqrt only moves them a little.
  a_ = static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  b_ = (n + a_ - 1) / a_;
}

uint64_t Permutation::operator()(uint64_t index) const {
  check(index < n_, "permutation: index must be below ", n_, "; got ", index);
  do {
    uint64_t left = index % a_, right = index / a_;
    for (uint64_t round = 0; round < kRounds; round += 2) {
      left = (left + draw(key_, right, round) % a_) % a_;
      right = (right + draw(key_, left, round + 1) % b_) % b_;
    }
    index = right * a_ + left;
  } while (index >= n_);
  return index;
}

}  // namespace xtrain
