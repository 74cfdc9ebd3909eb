#pragma once
// Products of small matrices that lie in the caches: the building block of kernels that stream over
// tiles. Sums are held in registers, 8 rows by 16 columns at a time, each over the depth in order,
// so the bits of a row do not depend on the rows beside it.

#include <cstdint>

namespace xtrain {

// The columns computed side by side; a multiple of them leaves no remainder.
inline constexpr int64_t kTileLanes = 16;

// Element (i, j) of a matrix is data[i * row + j * column].
template <class A>
struct TileMatrix {
  const A* data;
  int64_t row;
  int64_t column;
};

namespace tile_gemm_detail {

// c = (+=) a b for Rows rows and `columns` columns, at most kTileLanes; the compiler knows the
// number when Columns is not 0.
template <int Rows, int64_t Columns, class A>
inline void multiply_block(int64_t columns, int64_t depth, const TileMatrix<A>& a, const A* b,
                           int64_t b_row, A* c, int64_t c_row, bool add) {
  const int64_t n = Columns ? Columns : columns;
  A sums[Rows][kTileLanes] = {};
  for (int64_t k = 0; k < depth; ++k) {
    for (int i = 0; i < Rows; ++i) {
      const A factor = a.data[i * a.row + k * a.column];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sums[i][j] += factor * b[k * b_row + j];
    }
  }
  for (int i = 0; i < Rows; ++i) {
    A* target = c + i * c_row;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) target[j] = add ? target[j] + sums[i][j] : sums[i][j];
  }
}

template <int Rows, class A>
inline void multiply_rows(int64_t columns, int64_t depth, const TileMatrix<A>& a, const A* b,
                          int64_t b_row, A* c, int64_t c_row, bool add) {
  int64_t j = 0;
  for (; j + kTileLanes <= columns; j += kTileLanes) {
    multiply_block<Rows, kTileLanes>(kTileLanes, depth, a, b + j, b_row, c + j, c_row, add);
  }
  if (j < columns) {
    multiply_block<Rows, 0>(columns - j, depth, a, b + j, b_row, c + j, c_row, add);
  }
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
  for (; rows >= 8; advance(8)) multiply_rows<8>(columns, depth, a, b, b_row, c, c_row, add);
  for (; rows >= 4; advance(4)) multiply_rows<4>(columns, depth, a, b, b_row, c, c_row, add);
  for (; rows >= 1; advance(1)) multiply_rows<1>(columns, depth, a, b, b_row, c, c_row, add);
}

}  // namespace xtrain
