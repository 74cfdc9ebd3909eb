#pragma once
// The innermost loop of a matrix product: a tile of sums that lives in the vector registers.
//
// For every k, kTileRows values of a meet kTileColumns values of b: kTileRows + kTileColumns loads
// feed kTileRows * kTileColumns multiply-adds. A multiply-add takes about 4 cycles and two can
// start in each, so at least 8 independent vectors of sums are needed to keep the unit busy; a
// value of a is broadcast once and used for two vectors of b, so loads are no bottleneck.
//
//              vector registers   sums            b   broadcast
//   AVX-512    32 x 64 bytes      8 x 2 vectors   2   1
//   AVX2       16 x 32 bytes      6 x 2 vectors   2   1
//   otherwise  16 x 16 bytes      4 x 2 vectors   2   1
//
// Each sum runs over k in order, by itself: its bits depend neither on the sums beside it nor on
// its place in the tile.

#include <cstdint>

namespace xtrain {

#if defined(__AVX512F__)
inline constexpr int64_t kVectorBytes = 64, kTileRows = 8;
#elif defined(__AVX2__)
inline constexpr int64_t kVectorBytes = 32, kTileRows = 6;
#else
inline constexpr int64_t kVectorBytes = 16, kTileRows = 4;
#endif
inline constexpr int64_t kTileVectors = 2;

template <class A>
inline constexpr int64_t kTileColumns = kTileVectors* kVectorBytes / int64_t{sizeof(A)};

// kTileRows rows of a matrix: element (i, k) is data[i * row + k * column].
template <class A>
struct TileRows {
  const A* data;
  int64_t row;
  int64_t column;
};

// sums (+)= a b, where b has `depth` rows of kTileColumns elements, b_row apart, and sums lies by
// rows, without gaps. `add` false starts the sums at zero.
template <class A>
inline void multiply_tile(int64_t depth, TileRows<A> a, const A* b, int64_t b_row, bool add,
                          A* sums) {
  // A vector of A that may lie anywhere in an array of A.
  typedef A Vector __attribute__((vector_size(kVectorBytes), aligned(sizeof(A)), may_alias));
  constexpr int64_t kLanes = kVectorBytes / int64_t{sizeof(A)};
  Vector s[kTileRows][kTileVectors] = {};
  Vector* target = reinterpret_cast<Vector*>(sums);
  if (add) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      for (int64_t v = 0; v < kTileVectors; ++v) s[i][v] = target[i * kTileVectors + v];
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[kTileVectors];
    for (int64_t v = 0; v < kTileVectors; ++v) {
      row[v] = *reinterpret_cast<const Vector*>(b + v * kLanes);
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kTileRows; ++i) {
      const A factor = a.data[i * a.row];
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v) s[i][v] += factor * row[v];
    }
    a.data += a.column;
    b += b_row;
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) target[i * kTileVectors + v] = s[i][v];
  }
}

}  // namespace xtrain
