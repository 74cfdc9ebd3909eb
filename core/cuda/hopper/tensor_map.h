#pragma once
// How the copy engine is told where a tensor lies and how its tiles lie in shared memory.

#include <cuda.h>

#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

// bf16 [batch, time, heads, width], width contiguous; strides in elements. A region of a packed
// projection is such a tensor.
struct TokenHeads {
  const BFloat16* data;
  int64_t batch, time, heads, width;
  int64_t batch_stride, time_stride, head_stride;
};

// Whether a map of it can be made: sizes from 1 to 2^31, width a multiple of 32 up to 256, data and
// strides multiples of 16 bytes (the stride of a dimension of size 1 does not count).
bool can_be_mapped(const TokenHeads& x);

// The map for load_tile and store_tile of core/cuda/hopper/tma.h, of tiles of `rows` (at most 256)
// positions in time of one head. Error where can_be_mapped says no.
CUtensorMap map_of_tiles(const TokenHeads& x, int rows);

}  // namespace xtrain
