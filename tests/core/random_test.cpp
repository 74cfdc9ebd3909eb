#include "core/random.h"

#include <array>
#include <cmath>
#include <set>

#include "support/catch.h"

using namespace xtrain;

namespace {

using Words = std::array<uint32_t, 4>;

Words words_of(const Philox4& w) {
  return {w.word[0], w.word[1], w.word[2], w.word[3]};
}

uint64_t join(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

struct Moments {
  double mean = 0.0, variance = 0.0, fourth = 0.0;
};

template <class Draw>
Moments moments_of(int64_t n, double center, Draw&& draw) {
  Moments m;
  for (int64_t i = 0; i < n; ++i) {
    const double x = draw(i), d = x - center;
    m.mean += x / static_cast<double>(n);
    m.variance += d * d / static_cast<double>(n);
    m.fourth += d * d * d * d / static_cast<double>(n);
  }
  return m;
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the published known answers", "[core]") {
  // Counter words, then key words, in the order of the Random123 vectors.
  CHECK(words_of(philox4x32(0, 0, 0)) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint64_t ones = ~uint64_t{0};
  CHECK(words_of(philox4x32(ones, ones, ones)) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Digits of pi.
  CHECK(words_of(philox4x32(join(0xa4093822, 0x299f31d0), join(0x243f6a88, 0x85a308d3),
                            join(0x13198a2e, 0x03707344))) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers lie from 0 to below 1 and reach close to both ends", "[core]") {
  CHECK(uniform_float(0) == 0.0f);
  CHECK(uniform_float(~uint32_t{0}) == 1.0f - 0x1p-24f);
  CHECK(uniform_double(0, 0) == 0.0);
  CHECK(uniform_double(~uint32_t{0}, ~uint32_t{0}) == 1.0 - 0x1p-53);
  CHECK(uniform_double(uint32_t{1} << 31, 0) == 0.5);
}

TEST_CASE("uniform numbers have the moments of the uniform distribution", "[core]") {
  const RandomStream stream = random_stream(7, 0, 0);
  const int64_t n = 1 << 20;
  const Moments m = moments_of(n, 0.5, [&](int64_t i) { return stream.uniform(3, i); });
  // Five standard deviations of each estimate.
  const double root = std::sqrt(static_cast<double>(n));
  CHECK(std::abs(m.mean - 0.5) < 5.0 * std::sqrt(1.0 / 12.0) / root);
  CHECK(std::abs(m.variance - 1.0 / 12.0) < 5.0 * std::sqrt(1.0 / 180.0) / root);
}

TEST_CASE("normal numbers have the moments of the normal distribution", "[core]") {
  const RandomStream stream = random_stream(8, 0, 0);
  const int64_t n = 1 << 19;
  const Moments m = moments_of(n, 0.0, [&](int64_t i) { return random_normal(stream, 0, i); });
  const double root = std::sqrt(static_cast<double>(n));
  CHECK(std::abs(m.mean) < 5.0 / root);
  CHECK(std::abs(m.variance - 1.0) < 5.0 * std::sqrt(2.0) / root);
  CHECK(std::abs(m.fourth - 3.0) < 5.0 * std::sqrt(96.0) / root);
}

TEST_CASE("integers below a bound are all reached and equally often", "[core]") {
  const RandomStream stream = random_stream(9, 0, 0);
  constexpr uint64_t kBound = 7;
  const int64_t n = 70000;
  int64_t counts[kBound] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t value = random_below(stream, 0, i, kBound);
    REQUIRE(value < kBound);
    ++counts[value];
  }
  const double expected = static_cast<double>(n) / kBound;
  for (int64_t count : counts) CHECK(std::abs(count - expected) < 5.0 * std::sqrt(expected));
  CHECK(random_below(stream, 0, 0, 1) == 0);
  CHECK(random_below(stream, 0, 0, ~uint64_t{0}) < ~uint64_t{0});
}

TEST_CASE("streams of other seeds, steps and sites do not meet", "[core]") {
  std::set<uint64_t> keys;
  std::set<uint64_t> first_words;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (int64_t step = 0; step < 64; ++step) {
      for (uint64_t site = 0; site < 32; ++site) {
        const RandomStream stream = random_stream(seed, step, site);
        keys.insert(stream.key);
        first_words.insert(join(stream.word(0, 0), stream.word(0, 1)));
      }
    }
  }
  CHECK(keys.size() == 8 * 64 * 32);
  CHECK(first_words.size() == 8 * 64 * 32);
}

TEST_CASE("a number depends on its place only", "[core]") {
  const RandomStream stream = random_stream(1, 2, 3);
  CHECK(stream.word(5, 6) == random_stream(1, 2, 3).word(5, 6));
  CHECK(stream.word(5, 6) == stream.quad(5, 1).word[2]);
  CHECK(stream.word(5, 6) != stream.word(6, 5));
  CHECK(stream.word(5, 6) != stream.word(5, 6 + (uint64_t{1} << 40)));
  const int64_t step = 2;
  CHECK(random_stream(RandomKey{.seed = 1, .step = &step}, 3).key == stream.key);
  CHECK(random_stream(RandomKey{.seed = 1}, 3).key == random_stream(1, 0, 3).key);
}
