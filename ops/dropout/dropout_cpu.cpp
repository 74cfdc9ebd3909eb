#include <cmath>

#include "core/parallel.h"
#include "ops/dropout/dropout_kernels.h"

namespace xtrain {
namespace {

// Elements whose numbers are drawn at once: a vector of Philox calls, four numbers each.
constexpr int64_t kQuads = 32, kDrawn = 4 * kQuads;

// words[i] for elements first + i of a sequence; first is a multiple of 4.
void draw(const RandomStream& stream, uint64_t sequence, uint64_t first, uint32_t* words) {
  uint32_t lanes[4][kQuads];
#pragma omp simd
  for (int64_t q = 0; q < kQuads; ++q) {
    const Philox4 w = stream.quad(sequence, first / 4 + static_cast<uint64_t>(q));
    for (int i = 0; i < 4; ++i) lanes[i][q] = w.word[i];
  }
  for (int64_t q = 0; q < kQuads; ++q) {
    for (int i = 0; i < 4; ++i) words[4 * q + i] = lanes[i][q];
  }
}

}  // namespace

template <class T>
void dropout_apply(const Cpu& cpu, const Dropout& dropout, const RandomKey& random, int64_t rows,
                   int64_t length, const T* x, T* y) {
  using A = Accumulator<T>;
  const RandomStream stream = random_stream(random, dropout.site);
  const int64_t first_sequence = random.first_sequence ? *random.first_sequence : 0;
  const A scale = static_cast<A>(1.0 / (1.0 - dropout.p));
  // uniform_float(word) >= p in integers: the upper 24 bits against p 2^24 rounded up.
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(dropout.p * 0x1p24));
  const int64_t pieces = (length + kElementBlock - 1) / kElementBlock;
  static_assert(kElementBlock % kDrawn == 0);
  parallel_for(cpu, rows * pieces, [&](int64_t task) {
    const int64_t row = task / pieces, begin = task % pieces * kElementBlock;
    const int64_t end = std::min(length, begin + kElementBlock);
    for (int64_t first = begin; first < end; first += kDrawn) {
      uint32_t words[kDrawn];
      draw(stream, static_cast<uint64_t>(first_sequence + row), static_cast<uint64_t>(first),
           words);
      const T* xi = x + row * length + first;
      T* yi = y + row * length + first;
      const int64_t count = std::min(kDrawn, end - first);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const A kept = static_cast<A>(xi[i]) * scale;
        yi[i] = static_cast<T>((words[i] >> 8) >= threshold ? kept : A{0});
      }
    }
  });
}

#define XT_DROPOUT(T)                                                                         \
  template void dropout_apply(const Cpu&, const Dropout&, const RandomKey&, int64_t, int64_t, \
                              const T*, T*);
XT_DROPOUT(double)
XT_DROPOUT(float)
XT_DROPOUT(BFloat16)
#undef XT_DROPOUT

}  // namespace xtrain
