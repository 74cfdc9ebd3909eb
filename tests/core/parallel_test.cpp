#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>
#include <vector>

#include "core/cpu/strided.h"
#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;

TEST_CASE("a parallel loop runs every index once", "[core]") {
  for (int threads : {1, 2, 3, 8}) {
    const Context ctx = cpu_context(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      parallel_for(Cpu{ctx}, count, [&](int64_t i) { ++seen[i]; });
      INFO(threads << " threads, " << count << " indices");
      CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("a parallel loop inside another runs every index once", "[core]") {
  const Context ctx = cpu_context(3);  // of which the inner loops get one
  for (int repetition = 0; repetition < 100; ++repetition) {
    std::vector<std::atomic<int>> seen(5000);
    parallel_for(Cpu{ctx}, 50, [&](int64_t i) {
      parallel_for(Cpu{ctx}, 100, [&](int64_t j) { ++seen[100 * i + j]; });
    });
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
  }
}

TEST_CASE("blocks have the same borders for any number of threads", "[core]") {
  const auto blocks = [](int threads, int64_t count) {
    const Context ctx = cpu_context(threads);
    std::vector<std::pair<int64_t, int64_t>> borders((count + 31) / 32);
    parallel_blocks(Cpu{ctx}, count, 32, [&](int64_t begin, int64_t end) {
      borders[begin / 32] = {begin, end};
    });
    return borders;
  };
  for (int64_t count : {0, 1, 31, 32, 33, 100}) {
    const auto expected = blocks(1, count);
    int64_t next = 0;
    for (const auto& [begin, end] : expected) {
      CHECK(begin == next);
      CHECK(end - begin <= 32);
      next = end;
    }
    CHECK(next == count);
    for (int threads : {2, 5}) CHECK(blocks(threads, count) == expected);
  }
}

TEST_CASE("threads 0 means every core of the mask, and a negative number is refused", "[core]") {
  CHECK(available_cores() >= 1);
  CHECK(cpu_context(0).threads == available_cores());
  CHECK(cpu_context(3).threads == 3);
  CHECK_THROWS_AS(cpu_context(-1), InputError);
}

TEST_CASE("an exception in a parallel loop reaches the caller", "[core]") {
  for (int threads : {1, 2, 8}) {
    const Context ctx = cpu_context(threads);
    std::atomic<int> finished{0};
    const auto loop = [&] {
      parallel_for(Cpu{ctx}, 100, [&](int64_t i) {
        if (i % 50 == 7) fail("body");
        ++finished;
      });
    };
    CHECK_THROWS_WITH(loop(), "body");
    CHECK(finished == 98);
  }
}

TEST_CASE("a strided loop visits each element once, in merged rows", "[core]") {
  const StridedLoop<1> contiguous({4, 5, 6}, {contiguous_strides({4, 5, 6})});
  CHECK(contiguous.rows() == 1);
  CHECK(contiguous.row_length() == 120);
  const StridedLoop<1> gaps({4, 5, 6}, {Strides{60, 6, 1}});
  CHECK(gaps.rows() == 4);
  CHECK(gaps.row_length() == 30);
  const StridedLoop<1> scalar({}, {Strides{}});
  CHECK(scalar.rows() * scalar.row_length() == 1);
  const StridedLoop<2> mixed({3, 1, 4}, {Strides{4, 9, 1}, Strides{1, 0, 3}});
  CHECK(mixed.rows() == 3);
  const Context ctx = cpu_context(2);
  std::vector<int> seen(12);
  parallel_strided(Cpu{ctx}, mixed, [&](const auto& at, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      CHECK(at[0] / 4 == at[1]);  // the same row in both
      ++seen[at[0] + i * mixed.row_stride(0)];
    }
  });
  CHECK(seen == std::vector<int>(12, 1));
}
