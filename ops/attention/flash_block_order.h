#pragma once
// The order in which the blocks of the mma kernels of flash attention begin their tiles.

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

namespace xtrain::flash_mma {

// Which tile of which head a block works on. Blocks start in the order of their numbers: of the
// heads that are taken together, those tiles come first that take longest under a causal mask, so
// that the last blocks to run are short and no multiprocessor waits long for another. What the
// heads taken together read should stay in the level 2 cache.
struct BlockOrder {
  unsigned heads, tiles, together;

  unsigned blocks() const { return heads * tiles; }

  struct Place {
    unsigned head, rank;  // rank 0: the tile that takes longest
  };
  XT_HOST_DEVICE Place place(unsigned block) const {
    const unsigned first = block / (together * tiles) * together, within = block - first * tiles;
    const unsigned left = heads - first, count = together < left ? together : left;
    return Place{first + within % count, within / count};
  }
};

// For heads whose blocks read `head_bytes`, all blocks of a head the same. Groups are as even as
// can be and read once to twice `bytes_together`, or are a single head where that reads more.
inline BlockOrder block_order(int64_t heads, int64_t tiles, int64_t head_bytes,
                              int64_t bytes_together) {
  const int64_t rounds =
      std::clamp(heads * head_bytes / bytes_together, int64_t{1}, std::max<int64_t>(heads, 1));
  const int64_t together = std::max<int64_t>((heads + rounds - 1) / rounds, 1);
  return BlockOrder{static_cast<unsigned>(heads), static_cast<unsigned>(tiles),
                    static_cast<unsigned>(together)};
}

}  // namespace xtrain::flash_mma
