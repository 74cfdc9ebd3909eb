#include "train/data/permutation.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "support/catch.h"

namespace xtrain {
namespace {

std::vector<uint64_t> images(uint64_t n, uint64_t seed, uint64_t stream) {
  const Permutation permutation(n, seed, stream);
  std::vector<uint64_t> all(n);
  for (uint64_t i = 0; i < n; ++i) all[i] = permutation(i);
  return all;
}

TEST_CASE("permutation: every number below n comes exactly once") {
  std::vector<uint64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const uint64_t n :
       {97ull, 100ull, 101ull, 255ull, 256ull, 257ull, 1000ull, 65536ull, 99991ull}) {
    sizes.push_back(n);
  }
  for (const uint64_t n : sizes) {
    std::vector<uint64_t> expected(n), sorted = images(n, 7, 3);
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == expected);
  }
}

TEST_CASE("permutation: seeds and streams give different orders, the same ones the same") {
  CHECK(images(1000, 7, 3) == images(1000, 7, 3));
  CHECK(images(1000, 7, 3) != images(1000, 7, 4));
  CHECK(images(1000, 7, 3) != images(1000, 8, 3));
}

// tests/tools/loss_curves_test.py has the same numbers.
TEST_CASE("permutation: the order is that of these numbers") {
  const Permutation permutation(9667, 1337, 3);
  const std::vector<uint64_t> expected{492, 2836, 6803, 1552, 7558, 9174, 4141, 3364};
  for (uint64_t i = 0; i < expected.size(); ++i) CHECK(permutation(i) == expected[i]);
}

TEST_CASE("permutation: looks random: fixed points and ascents as in a random order") {
  const uint64_t n = 20000;
  const std::vector<uint64_t> all = images(n, 1, 0);
  int64_t fixed = 0, ascents = 0;
  for (uint64_t i = 0; i < n; ++i) {
    fixed += all[i] == i;
    ascents += i > 0 && all[i] > all[i - 1];
  }
  CHECK(fixed <= 8);  // Poisson with mean 1: more than 8 has probability 1e-6
  // Ascents have mean (n - 1) / 2 and variance (n + 1) / 12; five standard deviations are 204.
  CHECK(std::abs(ascents - 9999) < 204);
}

TEST_CASE("permutation: 64-bit sizes") {
  const uint64_t n = 9035582198ull;
  const Permutation permutation(n, 1, 0);
  const Permutation other(n, 1, 1);
  uint64_t largest = 0;
  int equal = 0;
  for (uint64_t i = n - 1000; i < n; ++i) {
    REQUIRE(permutation(i) < n);
    largest = std::max(largest, permutation(i));
    equal += permutation(i) == other(i);
  }
  CHECK(largest > (uint64_t{1} << 32));
  CHECK(equal == 0);
}

TEST_CASE("permutation: indices and sizes out of range are errors") {
  CHECK_THROWS_AS(Permutation(0, 1, 1), Error);
  CHECK_THROWS_WITH(Permutation(5, 1, 1)(5), "permutation: index must be below 5; got 5");
}

}  // namespace
}  // namespace xtrain
