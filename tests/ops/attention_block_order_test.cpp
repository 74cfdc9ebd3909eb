// The order in which blocks of the mma kernels of flash attention begin their tiles.

#include <cstdint>
#include <vector>

#include "ops/attention/flash_block_order.h"
#include "support/catch.h"

using namespace xtrain;
using namespace xtrain::flash_mma;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Sizes {
  int64_t heads, tiles, head_bytes, bytes_together;
  unsigned together;
};

const Sizes kSizes[] = {
    {1, 1, 0, 32 * kMiB, 1},           {7, 5, 4 * kMiB, 32 * kMiB, 7},
    {16, 64, 4 * kMiB, 32 * kMiB, 8},  {17, 3, 4 * kMiB, 32 * kMiB, 9},
    {144, 8, kMiB / 2, 32 * kMiB, 72}, {5, 9, 100 * kMiB, 32 * kMiB, 1},
    {23, 2, 3 * kMiB, 16 * kMiB, 6},
};

}  // namespace

TEST_CASE("blocks of flash attention begin every tile of every head once, the longest first") {
  for (const Sizes& n : kSizes) {
    INFO(n.heads << " heads of " << n.tiles << " tiles, " << n.head_bytes << " bytes each");
    const BlockOrder order = block_order(n.heads, n.tiles, n.head_bytes, n.bytes_together);
    CHECK(order.together == n.together);
    REQUIRE(order.blocks() == n.heads * n.tiles);
    std::vector<int> begun(order.blocks());
    BlockOrder::Place last{0, 0};
    for (unsigned block = 0; block < order.blocks(); ++block) {
      const BlockOrder::Place at = order.place(block);
      REQUIRE(at.head < order.heads);
      REQUIRE(at.rank < order.tiles);
      ++begun[at.head * order.tiles + at.rank];
      const unsigned group = at.head / order.together, last_group = last.head / order.together;
      CHECK(group >= last_group);
      if (group == last_group) CHECK(at.rank >= last.rank);
      last = at;
    }
    CHECK(begun == std::vector<int>(order.blocks(), 1));
  }
}

TEST_CASE("blocks of flash attention take heads together whose keys and values fit a cache") {
  for (int64_t heads = 1; heads <= 300; ++heads) {
    for (int64_t head_bytes : {kMiB / 8, kMiB, 3 * kMiB, 20 * kMiB}) {
      const int64_t read = block_order(heads, 4, head_bytes, 32 * kMiB).together * head_bytes;
      INFO(heads << " heads of " << head_bytes << " bytes read " << read << " together");
      CHECK(read < 64 * kMiB + head_bytes);
      CHECK((read >= 32 * kMiB || read == heads * head_bytes));
    }
  }
}
