#pragma once
// bf16 products on the tensor cores by mma.sync of sm_80 and newer, and what feeds them: rows in
// shared memory, filled by cp.async and read by ldmatrix.
//
// One warp multiplies [16, 16] by [16, 8]. With g = lane / 4 and t = lane % 4 a lane holds
//
//   of the sum [16, 8]       float d[4]      (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1)
//   of the left [16, 16]     2 x bf16 a[4]   (g, 2t..) (g+8, 2t..) (g, 2t+8..) (g+8, 2t+8..)
//   of the right [16, 8]     2 x bf16 b[2]   (2t.., g) (2t+8.., g)
//
// so two neighbouring sums, rounded and packed, are the left operand of the next product: a chain
// of products needs no exchange between lanes (pack_left).

#include <cuda_runtime.h>

#include <cstdint>

#include "core/cuda/pack.h"
#include "core/cuda/shared_memory.h"
#include "core/dtype.h"

#if defined(__CUDACC__)

namespace xtrain {

// Four 8 x 8 matrices; lanes 8i .. 8i + 7 give the addresses of the rows of matrix i. Lane 4r + c
// receives elements (r, 2c) and (r, 2c + 1), or (2c, r) and (2c + 1, r) when transposed.
__device__ inline void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// sum += left right.
__device__ inline void mma(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0,
                           uint32_t right1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// kRowTiles x kColumnTiles sums of a warp.
template <int kRowTiles, int kColumnTiles>
using MmaSums = float[kRowTiles][kColumnTiles][4];
// kRowTiles x kSteps left operands.
template <int kRowTiles, int kSteps>
using MmaLeft = uint32_t[kRowTiles][kSteps][4];

template <int kRowTiles, int kColumnTiles>
__device__ void set_zero(MmaSums<kRowTiles, kColumnTiles>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
    }
  }
}

template <int kRowTiles, int kColumnTiles>
__device__ void pack_left(MmaLeft<kRowTiles, kColumnTiles / 2>& left,
                          const MmaSums<kRowTiles, kColumnTiles>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      left[m][n / 2][n % 2 * 2] = pack_bf16(sums[m][n][0], sums[m][n][1]);
      left[m][n / 2][n % 2 * 2 + 1] = pack_bf16(sums[m][n][2], sums[m][n][3]);
    }
  }
}

// Rows of kWidth bf16 in shared memory. The 16-byte pieces of a row are permuted within groups of
// kGroup pieces in a way that changes from row to row, so that the eight rows that ldmatrix reads
// together lie in different banks. Tiles begin at a multiple of 128 bytes.
template <int kWidth>
struct SharedRows {
  static_assert(kWidth % 32 == 0);
  static constexpr int kPieces = kWidth / 8, kRowBytes = kWidth * 2;
  static constexpr int kGroup = kWidth % 64 == 0 ? 8 : 4;

  __device__ static uint32_t offset(int row, int piece) {
    const int turn = kGroup == 8 ? row % 8 : row / 2 % 4;
    return static_cast<uint32_t>(row * kRowBytes + (piece ^ turn) * 16);
  }
};

// Where a lane points ldmatrix at: 16 rows x 16 columns of SharedRows. `plain` order gives left
// operands, and right operands when transposed; `crossed` order gives right operands of the
// product with the rows' transpose.
template <int kWidth>
class MatrixLane {
  using Rows = SharedRows<kWidth>;
  static constexpr int kTurns = Rows::kGroup / 2;

 public:
  __device__ static MatrixLane plain(int lane) { return MatrixLane(lane % 16, lane / 16); }
  __device__ static MatrixLane crossed(int lane) {
    return MatrixLane(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  // Columns 16 column_step .. of rows row .. of the tile at `tile`; row is a multiple of 8.
  __device__ uint32_t at(uint32_t tile, int row, int column_step) const {
    return tile + offset_[column_step % kTurns] + row * Rows::kRowBytes +
           column_step / kTurns * (kTurns * 32);
  }

 private:
  __device__ MatrixLane(int row, int piece) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) offset_[i] = Rows::offset(row, piece + 2 * i);
  }

  uint32_t offset_[kTurns];
};

// Copies kRows rows of one matrix into a tile by a block of kThreads threads. Rows outside
// [first, end), counted from `from`, become zeros and are not read.
template <int kWidth, int kRows, int kThreads>
__device__ void copy_rows_async(uint32_t tile, const BFloat16* from, int64_t stride, int first,
                                int end) {
  using Rows = SharedRows<kWidth>;
  constexpr int kRowsAtOnce = kThreads / Rows::kPieces;
  const int thread = static_cast<int>(threadIdx.x), piece = thread % Rows::kPieces;
  int row = thread / Rows::kPieces;
  if (kThreads % Rows::kPieces != 0 && row >= kRowsAtOnce) return;
  from += row * stride + piece * 8;
#pragma unroll
  for (int done = 0; done < kRows; done += kRowsAtOnce) {
    if (kRows % kRowsAtOnce != 0 && row >= kRows) break;
    copy_async(tile + Rows::offset(row, piece), from, first <= row && row < end);
    row += kRowsAtOnce;
    from += kRowsAtOnce * stride;
  }
}

// sums += x y^T: x the kRowTiles * 16 rows at `left`, y the kColumnTiles * 8 rows at `right`.
template <int kWidth, int kRowTiles, int kColumnTiles>
__device__ void multiply_rows(MmaSums<kRowTiles, kColumnTiles>& sums,
                              const MatrixLane<kWidth>& plain, uint32_t left,
                              const MatrixLane<kWidth>& crossed, uint32_t right) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], plain.at(left, m * 16, k));
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      uint32_t b[4];
      load_matrices(b, crossed.at(right, n * 8, k));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma(sums[m][n], a[m], b[0], b[1]);
        mma(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// The same with x already loaded.
template <int kWidth, int kRowTiles, int kColumnTiles>
__device__ void multiply_rows(MmaSums<kRowTiles, kColumnTiles>& sums,
                              const MmaLeft<kRowTiles, kWidth / 16>& left,
                              const MatrixLane<kWidth>& crossed, uint32_t right) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      uint32_t b[4];
      load_matrices(b, crossed.at(right, n * 8, k));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma(sums[m][n], left[m][k], b[0], b[1]);
        mma(sums[m][n + 1], left[m][k], b[2], b[3]);
      }
    }
  }
}

// x of several such products: read from shared memory each time, or kept in registers where kHeld.
template <int kWidth, int kRowTiles, bool kHeld>
class LeftRows {
 public:
  __device__ LeftRows(const MatrixLane<kWidth>& plain, uint32_t tile) : tile_(tile) {
    if constexpr (kHeld) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int k = 0; k < kWidth / 16; ++k) load_matrices(held_[m][k], plain.at(tile, m * 16, k));
      }
    }
  }

  template <int kColumnTiles>
  __device__ void multiply(MmaSums<kRowTiles, kColumnTiles>& sums, const MatrixLane<kWidth>& plain,
                           const MatrixLane<kWidth>& crossed, uint32_t right) const {
    if constexpr (kHeld) {
      multiply_rows<kWidth>(sums, held_, crossed, right);
    } else {
      multiply_rows<kWidth>(sums, plain, tile_, crossed, right);
    }
  }

 private:
  uint32_t tile_;
  MmaLeft<kHeld ? kRowTiles : 1, kHeld ? kWidth / 16 : 1> held_;
};

// sums += x y: y the kSteps * 16 rows at `right`.
template <int kWidth, int kRowTiles, int kSteps>
__device__ void multiply(MmaSums<kRowTiles, kWidth / 8>& sums,
                         const MmaLeft<kRowTiles, kSteps>& left, const MatrixLane<kWidth>& plain,
                         uint32_t right) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, plain.at(right, k * 16, n));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma(sums[m][2 * n], left[m][k], b[0], b[1]);
        mma(sums[m][2 * n + 1], left[m][k], b[2], b[3]);
      }
    }
  }
}

}  // namespace xtrain

#endif
