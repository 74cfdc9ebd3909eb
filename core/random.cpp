#include "core/random.h"

#include <cmath>
#include <numbers>

namespace xtrain {

double random_normal(const RandomStream& stream, uint64_t sequence, uint64_t element) {
  const Philox4 w = stream.quad(sequence, element);
  // 1 - u lies in (0, 1], so that the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double(w.word[0], w.word[1])));
  return radius * std::cos(2.0 * std::numbers::pi * uniform_double(w.word[2], w.word[3]));
}

uint64_t random_below(const RandomStream& stream, uint64_t sequence, uint64_t element,
                      uint64_t bound) {
  const Philox4 w = stream.quad(sequence, element);
  const uint64_t bits = (static_cast<uint64_t>(w.word[0]) << 32) | w.word[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

}  // namespace xtrain
