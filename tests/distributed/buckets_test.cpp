#include "distributed/buckets.h"

#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

// Parameters of the given sizes, each in a slice of a whole number of 128 elements, the last added
// first in the arena.
struct Sizes {
  explicit Sizes(const std::vector<int64_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      set.add(std::to_string(i), {sizes[i]}, ParameterKind::vector, 0.0, 0.0);
    }
    set.allocate(cpu_context(1), Dtype::f32);
  }
  Parameter& operator[](size_t i) { return set.list()[i]; }
  ParameterSet set;
};

// The begins of the buckets handed out so far.
struct Started {
  std::vector<int64_t> begins;
  Buckets::Start record() {
    return [this](ArenaRange range) { begins.push_back(range.begin); };
  }
};

using Begins = std::vector<int64_t>;

}  // namespace

TEST_CASE("buckets tile the arena", "[distributed]") {
  Sizes sizes({100, 1, 513, 0, 300});
  for (int64_t elements : {1, 100, 128, 1000, 100000}) {
    const Buckets buckets(sizes.set, elements, [](ArenaRange) {});
    int64_t end = 0;
    for (ArenaRange range : buckets.ranges()) {
      CHECK(range.begin == end);
      CHECK(range.end > range.begin);
      CHECK(range.end - range.begin <= elements);
      end = range.end;
    }
    CHECK(end == sizes.set.arena_size());
  }
}

TEST_CASE("a bucket starts when it is complete and those before it have started", "[distributed]") {
  Sizes sizes({128, 128, 128, 128});  // in the arena: 3, 2, 1, 0
  Started started;
  Buckets buckets(sizes.set, 256, started.record());
  for (int step = 0; step < 2; ++step) {
    started.begins.clear();
    buckets.ready(sizes[0]);
    buckets.ready(sizes[1]);  // the second bucket is complete, the first is not
    buckets.ready(sizes[2]);
    CHECK(started.begins.empty());
    buckets.ready(sizes[3]);
    CHECK(started.begins == Begins{0, 256});
    buckets.flush();
    CHECK(started.begins == Begins{0, 256});
  }
}

TEST_CASE("a parameter that spans buckets completes all of them", "[distributed]") {
  Sizes sizes({128, 600});  // the arena: 640 elements of the second, 128 of the first
  Started started;
  Buckets buckets(sizes.set, 256, started.record());
  buckets.ready(sizes[1]);
  CHECK(started.begins == Begins{0, 256});  // the third waits for the other parameter
  buckets.ready(sizes[0]);
  CHECK(started.begins == Begins{0, 256, 512});
}

TEST_CASE("rows of zeros behind a parameter are complete with it", "[distributed]") {
  ParameterSet set;
  Parameter& table = set.add("table", {2, 64}, ParameterKind::embedding, 0.0, 0.0);
  table.zero_rows = 6;  // three more buckets
  set.allocate(cpu_context(1), Dtype::f32);
  Started started;
  Buckets buckets(set, 128, started.record());
  CHECK(buckets.ranges().size() == 4);
  buckets.ready(table);
  CHECK(started.begins == Begins{0, 128, 256, 384});
}

TEST_CASE("what is missing at the end of a step leaves in the same order", "[distributed]") {
  Sizes sizes({128, 128, 128, 128});
  Started started;
  Buckets buckets(sizes.set, 128, started.record());
  buckets.ready(sizes[1]);
  buckets.ready(sizes[3]);
  CHECK(started.begins == Begins{0});
  buckets.flush();
  CHECK(started.begins == Begins{0, 128, 256, 384});
}

TEST_CASE("nobody waits for the gradients of frozen parameters", "[distributed]") {
  Sizes sizes({128, 128});
  sizes[1].trainable = false;
  Started started;
  Buckets buckets(sizes.set, 256, started.record());
  buckets.ready(sizes[0]);
  CHECK(started.begins == Begins{0});
}

TEST_CASE("a gradient that is final twice in a step is an error", "[distributed]") {
  Sizes sizes({128, 128});
  Buckets buckets(sizes.set, 256, [](ArenaRange) {});
  buckets.ready(sizes[0]);
  CHECK_THROWS_WITH((buckets.ready(sizes[0]), buckets.ready(sizes[0])),
                    "buckets: the gradient of 0 was final before; each is so once a step");
}
