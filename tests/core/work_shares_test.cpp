#include "core/work_shares.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"

using namespace xtrain;

namespace {

using Range = std::pair<int64_t, int64_t>;

// What a thread takes when it alone goes on from here.
std::vector<Range> rest(WorkShares& shares, int thread) {
  std::vector<Range> taken;
  for (int64_t begin = 0, end = 0; shares.take(thread, begin, end);) taken.push_back({begin, end});
  return taken;
}

}  // namespace

TEST_CASE("every iteration is taken once, whoever takes it", "[core]") {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t count :
         {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}, (int64_t{1} << 40) + 3}) {
      WorkShares shares(count, threads);
      std::vector<Range> taken;
      int64_t begin = 0, end = 0;
      // Threads of unequal speed: thread t takes t + 1 pieces a turn.
      for (bool any = true; any;) {
        any = false;
        for (int t = 0; t < threads; ++t) {
          for (int i = 0; i <= t && shares.take(t, begin, end); ++i) {
            taken.push_back({begin, end});
            any = true;
          }
        }
      }
      std::sort(taken.begin(), taken.end());
      INFO(threads << " threads, " << count << " iterations");
      CHECK(taken.size() <= 64 * size_t(threads));
      int64_t next = 0;
      for (const auto& [first, last] : taken) {
        CHECK(first == next);
        CHECK(first < last);
        next = last;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("a thread works through its share in order, then takes the far ends of others",
          "[core]") {
  WorkShares shares(12, 3);
  CHECK(rest(shares, 1) == std::vector<Range>{{4, 5},
                                              {5, 6},
                                              {6, 7},
                                              {7, 8},
                                              {11, 12},
                                              {10, 11},
                                              {9, 10},
                                              {8, 9},
                                              {3, 4},
                                              {2, 3},
                                              {1, 2},
                                              {0, 1}});
  CHECK(rest(shares, 0).empty());
}

TEST_CASE("threads that keep step have shares of their own, in order", "[core]") {
  WorkShares shares(8, 2);
  int64_t begin = 0, end = 0;
  for (const int64_t step : {0, 1, 2, 3}) {
    for (const int thread : {0, 1}) {
      CHECK(shares.take(thread, begin, end));
      CHECK(Range{begin, end} == Range{4 * thread + step, 4 * thread + step + 1});
    }
  }
  CHECK_FALSE(shares.take(0, begin, end));
}

TEST_CASE("threads that take at once take every iteration once", "[core]") {
  constexpr int kThreads = 4;
  for (int repetition = 0; repetition < 200; ++repetition) {
    WorkShares shares(1000, kThreads);
    std::vector<std::vector<Range>> taken(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { taken[t] = rest(shares, t); });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<int> times(1000);
    for (const auto& ranges : taken) {
      for (const auto& [first, last] : ranges) {
        for (int64_t i = first; i < last; ++i) ++times[i];
      }
    }
    CHECK(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
  }
}
