#pragma once
// How a tile of bf16 lies in shared memory for the copy engine and for wgmma, and the descriptors
// by which wgmma finds its operands in it.
//
// The columns are cut into chunks of 64 (or 32) columns, 128 (or 64) bytes: as wide as the swizzle.
// A chunk holds its part of all rows, row after row; chunk follows chunk. Within a chunk the pieces
// of 16 bytes of a row are permuted by the row's number, so that eight pieces one above the other
// lie in different banks:
//
//   byte = chunk * kRows * W + row * W + 2 * (column % (W / 2))       W = 128 or 64
//   byte ^= ((byte / 128) % 8) * 16  for 128,  ((byte / 128) % 4) * 16  for 64
//
// The permutation reads bits of the address itself, so tiles begin at multiples of 1024.
//
// One wgmma multiplies 16 elements deep. A tile can stand for an operand in two ways, and both need
// no other copy of it:
//
//   along_width   the sum runs along the columns ("K-major"): queries and keys in q k^T
//   along_rows    the sum runs along the rows ("MN-major"): values in p v
//
// Fields of a descriptor (PTX ISA, "matrix descriptor"), lengths in units of 16 bytes:
//
//   bits  0-13  address            16-29  leading offset        32-45  stride offset
//        49-51  base offset, 0 for tiles at multiples of 1024   62-63  swizzle: 1 is 128, 2 is 64
//
//   along_width   stride: from 8 rows to the next 8; leading: not read, a chunk is never left
//   along_rows    stride: the same; leading: from chunk to chunk

#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

// kSwizzle: 128 where the width divides by 64, as map_of_tiles does; the last chunk may be part
// full.
template <int kRows, int kWidth, int kSwizzle = kWidth % 64 == 0 ? 128 : 64>
struct SwizzledTile {
  static_assert(kRows % 8 == 0 && kWidth % 16 == 0 && (kSwizzle == 128 || kSwizzle == 64));
  static constexpr int kChunk = kSwizzle / 2;  // columns
  static constexpr int kChunks = (kWidth + kChunk - 1) / kChunk;
  static constexpr int kChunkBytes = kRows * kSwizzle, kBytes = kChunks * kChunkBytes;

  // Of an element, from the beginning of the tile.
  XT_HOST_DEVICE static constexpr uint32_t offset(int row, int column) {
    const uint32_t plain =
        static_cast<uint32_t>(column / kChunk * kChunkBytes + row * kSwizzle + column % kChunk * 2);
    return plain ^ (plain / 128 % (kSwizzle / 16)) * 16;
  }

  // Operand rows `row` .. of the tile, a multiple of 8, and its columns 16 * step .. .
  XT_HOST_DEVICE static constexpr uint64_t along_width(uint32_t tile, int step, int row = 0) {
    const int column = step * 16;
    return descriptor(tile, 16,
                      column / kChunk * kChunkBytes + row * kSwizzle + column % kChunk * 2);
  }
  // Operand columns `column` .. of the tile, a multiple of kChunk, and its rows 16 * step .. .
  XT_HOST_DEVICE static constexpr uint64_t along_rows(uint32_t tile, int step, int column = 0) {
    return descriptor(tile, kChunkBytes, column / kChunk * kChunkBytes + step * 16 * kSwizzle);
  }

 private:
  // The place within the tile is added to the descriptor of the tile, so that one addition leads
  // from one product to the next. No carry: shared memory is smaller than what the address field
  // spans.
  XT_HOST_DEVICE static constexpr uint64_t descriptor(uint32_t tile, uint32_t leading,
                                                      uint32_t bytes) {
    constexpr uint32_t kUpper = (kSwizzle == 128 ? 1u : 2u) << 30 | 8 * kSwizzle / 16;
    const uint32_t lower = ((tile & 0x3ffff) / 16 | leading / 16 << 16) + bytes / 16;
    return uint64_t{kUpper} << 32 | lower;
  }
};

}  // namespace xtrain
