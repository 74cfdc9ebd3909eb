#pragma once
// Kernels that do nothing but one product or one copy, for the tests of core/cuda/hopper.

#include <string>
#include <vector>

#include "core/dispatch.h"

namespace xtrain {

// left [64, depth] times right [columns, depth] transposed, both contiguous, into product [64,
// columns], by one way of giving wgmma its operands.
struct WgmmaRecipe {
  std::string what;
  int columns, depth;
  void (*multiply)(const Cuda& cuda, const BFloat16* left, const BFloat16* right, float* product);
};
std::vector<WgmmaRecipe> wgmma_recipes();

// (x y^T) z for x [64, 16], y [64, 16] and z [64, 64]: the sums of the first product, rounded, are
// the left operand of the second one; also x y^T rounded, as it reads from the tile that
// store_rounded wrote.
void wgmma_chain(const Cuda& cuda, const BFloat16* x, const BFloat16* y, const BFloat16* z,
                 float* product, BFloat16* rounded);

// bf16 [batch, time, heads, width], strides in elements.
struct TileCopy {
  int width, rows;  // of the tile
  int64_t batch, time, heads;
  int64_t batch_stride, time_stride, head_stride;
};
// The tile of rows `row` .. of one head goes through the copy engine into shared memory, from there
// element by element into tile [rows, width], and through the copy engine to the same place of
// `to`, which has the strides of `from`. false: there is no such kernel.
bool copy_tile(const Cuda& cuda, const TileCopy& copy, int b, int h, int row, const BFloat16* from,
               BFloat16* to, BFloat16* tile);

// x [tiles * 64, 64] goes through a ring of 2 or 4 stages to two warpgroups, of which each writes a
// copy: y [2, tiles * 64, 64].
void copy_through_ring(const Cuda& cuda, int stages, int tiles, const BFloat16* x, BFloat16* y);

}  // namespace xtrain
