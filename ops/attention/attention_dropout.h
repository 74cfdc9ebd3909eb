#pragma once
// The random factors of dropout on attention probabilities, numbered as attention.h says, so that
// both kinds of attention draw the same.

#include <cmath>

#include "core/random.h"
#include "ops/dropout/dropout.h"

namespace xtrain {

// What the factors are drawn from. The numbers that it points to lie in the memory of the device.
struct DropoutSource {
  Dropout dropout;
  RandomKey random;
};

struct AttentionDropout {
  RandomStream stream;
  uint64_t first_sequence = 0;
  uint32_t threshold = 0;
  double kept = 1.0;  // the factor of what is kept

  // Where the kernel runs.
  XT_HOST_DEVICE explicit AttentionDropout(const DropoutSource& source)
      : stream(random_stream(source.random, source.dropout.site)),
        first_sequence(source.random.first_sequence
                           ? static_cast<uint64_t>(*source.random.first_sequence)
                           : 0),
        // uniform_float(word) >= p in integers: the upper 24 bits against p 2^24 rounded up.
        threshold(static_cast<uint32_t>(ceil(source.dropout.p * 0x1p24))),
        kept(1.0 / (1.0 - source.dropout.p)) {}

  // The words of keys 4 * key_quad .. 4 * key_quad + 3.
  XT_HOST_DEVICE Philox4 words(int64_t batch, int64_t head, int64_t query, int64_t key_quad) const {
    const uint64_t quad = (static_cast<uint64_t>(head) << 54) |
                          (static_cast<uint64_t>(query) << 26) | static_cast<uint64_t>(key_quad);
    return stream.quad(first_sequence + static_cast<uint64_t>(batch), quad);
  }
  XT_HOST_DEVICE bool keeps(uint32_t word) const { return (word >> 8) >= threshold; }
};

}  // namespace xtrain
