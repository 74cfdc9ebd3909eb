#pragma once
// Products of small matrices that lie in the caches: the building block of kernels that stream over
// tiles. Sums are held in registers, a tile of register_tile.h at a time, each over the depth in
// order, so the bits of a row do not depend on the rows beside it.

#include <cstdint>

#include "core/cpu/register_tile.h"

namespace xtrain {

// A multiple of so many columns is whole vectors on every processor.
inline constexpr int64_t kTileLanes = 16;

namespace tile_gemm_detail {

// c = (+=) a b for kRows rows and kVectors vectors of columns.
template <int64_t kRows, int64_t kVectors, class A>
inline void multiply_block(int64_t depth, const TileMatrix<A>& a, const A* b, int64_t b_row, A* c,
                           int64_t c_row, bool add) {
  using Vector = typename VectorOf<A>::type;
  Vector sums[kRows][kVectors];
  clear_sums<A>(sums);
  add_products(depth, a, b, b_row, sums);
  for (int64_t i = 0; i < kRows; ++i) {
    Vector* target = reinterpret_cast<Vector*>(c + i * c_row);
    for (int64_t v = 0; v < kVectors; ++v) target[v] = add ? target[v] + sums[i][v] : sums[i][v];
  }
}

// The same for less than a vector of columns.
template <int64_t kRows, class A>
inline void multiply_edge(int64_t columns, int64_t depth, const TileMatrix<A>& a, const A* b,
                          int64_t b_row, A* c, int64_t c_row, bool add) {
  A sums[kRows][VectorOf<A>::kLanes] = {};
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kRows; ++i) {
      const A factor = a.data[i * a.row + k * a.column];
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) sums[i][j] += factor * b[k * b_row + j];
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    A* target = c + i * c_row;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) target[j] = add ? target[j] + sums[i][j] : sums[i][j];
  }
}

template <int64_t kRows, class A>
inline void multiply_rows(int64_t columns, int64_t depth, const TileMatrix<A>& a, const A* b,
                          int64_t b_row, A* c, int64_t c_row, bool add) {
  constexpr int64_t kLanes = VectorOf<A>::kLanes;
  int64_t j = 0;
  for (; j + kTileColumns<A> <= columns; j += kTileColumns<A>) {
    multiply_block<kRows, kTileVectors>(depth, a, b + j, b_row, c + j, c_row, add);
  }
  for (; j + kLanes <= columns; j += kLanes) {
    multiply_block<kRows, 1>(depth, a, b + j, b_row, c + j, c_row, add);
  }
  if (j < columns) multiply_edge<kRows>(columns - j, depth, a, b + j, b_row, c + j, c_row, add);
}

}  // namespace tile_gemm_detail

// c = a b, or c += a b when `add`: a [rows, depth], b [depth, columns] and c [rows, columns] by
// rows with the given strides. c must not overlap a or b.
template <class A>
void tile_multiply(int64_t rows, int64_t columns, int64_t depth, TileMatrix<A> a, const A* b,
                   int64_t b_row, A* c, int64_t c_row, bool add) {
  using tile_gemm_detail::multiply_rows;
  const auto advance = [&](int64_t n) {
    a.data += n * a.row;
    c += n * c_row;
    rows -= n;
  };
  for (; rows >= kTileRows; advance(kTileRows)) {
    multiply_rows<kTileRows>(columns, depth, a, b, b_row, c, c_row, add);
  }
  for (; rows >= 4; advance(4)) multiply_rows<4>(columns, depth, a, b, b_row, c, c_row, add);
  for (; rows >= 1; advance(1)) multiply_rows<1>(columns, depth, a, b, b_row, c, c_row, add);
}

}  // namespace xtrain
