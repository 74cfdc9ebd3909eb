#include "train/data/ordered_pipeline.h"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace xtrain {
namespace {

// Squares of 0..count-1; the work on some takes longer, and `bad` throws in a stage.
struct Squares {
  int threads;
  int count = 200;
  int bad_produce = -1, bad_work = -1, bad_consume = -1, stop_at = -1;
  std::vector<int> out = {};

  void run() {
    int next = 0;
    OrderedPipeline<int>(threads).run(
        [&](int& item) {
          if (next == bad_produce) throw std::runtime_error("produce");
          item = next++;
          return item < count;
        },
        [&](int& item, int thread) {
          if (thread < 0 || thread >= threads) throw std::runtime_error("thread");
          if (item % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
          if (item == bad_work) throw std::runtime_error("work");
          item *= item;
        },
        [&](int& item) {
          const int number = static_cast<int>(out.size());
          if (number == bad_consume) throw std::runtime_error("consume");
          out.push_back(item);
          return number != stop_at;
        });
  }
};

TEST_CASE("ordered_pipeline: items come out in order on any number of threads") {
  for (const int threads : {1, 2, 5}) {
    Squares squares{threads};
    squares.run();
    REQUIRE(squares.out.size() == 200);
    for (int i = 0; i < 200; ++i) CHECK(squares.out[static_cast<size_t>(i)] == i * i);
  }
}

TEST_CASE("ordered_pipeline: a stream without items ends") {
  Squares squares{3, 0};
  squares.run();
  CHECK(squares.out.empty());
}

TEST_CASE("ordered_pipeline: what a stage throws comes out behind the items before it") {
  Squares produce{3}, work{3}, consume{3};
  produce.bad_produce = work.bad_work = consume.bad_consume = 50;
  CHECK_THROWS_WITH(produce.run(), "produce");
  CHECK(produce.out.size() == 50);
  CHECK_THROWS_WITH(work.run(), "work");
  CHECK(work.out.size() == 50);
  CHECK_THROWS_WITH(consume.run(), "consume");
  CHECK(consume.out.size() == 50);
}

TEST_CASE("ordered_pipeline: the consumer can stop early") {
  Squares squares{2};
  squares.stop_at = 20;
  squares.run();
  CHECK(squares.out.size() == 21);
}

}  // namespace
}  // namespace xtrain
