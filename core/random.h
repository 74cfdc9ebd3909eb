#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a function of (seed, step, site, sequence, element)
// and of nothing else, so CPU and CUDA, recompute, graph replay, accumulation and any number of
// threads or ranks draw the same. There is no running counter to save or to restore.

#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

struct Philox4 {
  uint32_t word[4];
};

// Ten rounds of Philox4x32 on a 128-bit counter under a 64-bit key.
XT_HOST_DEVICE inline Philox4 philox4x32(uint64_t key, uint64_t counter_low,
                                         uint64_t counter_high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  Philox4 c{{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
             static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c.word[0];
    const uint64_t p1 = 0xCD9E8D57ull * c.word[2];
    c = Philox4{{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Uniform in [0, 1) with 24 bits: every value is exact in f32.
XT_HOST_DEVICE inline float uniform_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Uniform in [0, 1) with 53 bits.
XT_HOST_DEVICE inline double uniform_double(uint32_t high, uint32_t low) {
  return static_cast<double>(((static_cast<uint64_t>(high) << 32) | low) >> 11) * 0x1p-53;
}

// What the numbers of a step depend on. `step` and `first_sequence` are read where the kernel runs
// (host or device memory), so that a captured step draws fresh numbers each time it is replayed;
// null counts as 0. Row b of a batch is sequence first_sequence + b, counted over the whole run:
// that tells micro-steps and ranks apart.
struct RandomKey {
  uint64_t seed = 0;
  const int64_t* step = nullptr;
  const int64_t* first_sequence = nullptr;
};

// The random numbers of one place in the model (`site`) in one step.
struct RandomStream {
  uint64_t key = 0;

  // Four words for elements 4 * quad .. 4 * quad + 3 of a sequence.
  XT_HOST_DEVICE Philox4 quad(uint64_t sequence, uint64_t quad) const {
    return philox4x32(key, quad, sequence);
  }
  XT_HOST_DEVICE uint32_t word(uint64_t sequence, uint64_t element) const {
    return quad(sequence, element >> 2).word[element & 3];
  }
  XT_HOST_DEVICE float uniform(uint64_t sequence, uint64_t element) const {
    return uniform_float(word(sequence, element));
  }
};

XT_HOST_DEVICE inline RandomStream random_stream(uint64_t seed, int64_t step, uint64_t site) {
  const Philox4 w = philox4x32(seed, static_cast<uint64_t>(step), site);
  return RandomStream{(static_cast<uint64_t>(w.word[1]) << 32) | w.word[0]};
}

XT_HOST_DEVICE inline RandomStream random_stream(const RandomKey& key, uint64_t site) {
  return random_stream(key.seed, key.step ? *key.step : 0, site);
}

// Standard normal number `element` of the stream (Box-Muller in double).
double random_normal(const RandomStream& stream, uint64_t sequence, uint64_t element);

// Uniform integer in [0, bound), bound > 0, free of modulo bias to 2^-64 * bound.
uint64_t random_below(const RandomStream& stream, uint64_t sequence, uint64_t element,
                      uint64_t bound);

}  // namespace xtrain
