#include "distributed/affinity.h"

#include "support/catch.h"

using namespace xtrain;

TEST_CASE("processes share cores out in neighbourhoods, none twice", "[distributed]") {
  const std::vector<int> cores{0, 1, 4, 5, 8};
  CHECK(share_of(cores, 0, 1) == cores);
  CHECK(share_of(cores, 0, 2) == std::vector<int>{0, 1});
  CHECK(share_of(cores, 1, 2) == std::vector<int>{4, 5, 8});
  for (int i = 0; i < 5; ++i) CHECK(share_of(cores, i, 5) == std::vector<int>{cores[size_t(i)]});
}

TEST_CASE("more processes than cores take turns on them", "[distributed]") {
  CHECK(share_of({2, 3}, 0, 4) == std::vector<int>{2});
  CHECK(share_of({2, 3}, 3, 4) == std::vector<int>{3});
}

TEST_CASE("cores are written as people write them", "[distributed]") {
  CHECK(core_list({0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(core_list({5}) == "5");
  CHECK(core_list({}) == "");
}
