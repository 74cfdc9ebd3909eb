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

// A vector of A that may lie anywhere in an array of A.
template <class A>
struct VectorOf {
  typedef A type __attribute__((vector_size(kVectorBytes), aligned(sizeof(A)), may_alias));
  static constexpr int64_t kLanes = kVectorBytes / int64_t{sizeof(A)};
};

// Element (i, j) of a matrix is data[i * row + j * column].
template <class A>
struct TileMatrix {
  const A* data;
  int64_t row;
  int64_t column;
};

// A vector of b, in a register: at some of its uses the compiler would rather read it again.
template <class A>
inline typename VectorOf<A>::type load_to_register(const A* b) {
  auto vector = *reinterpret_cast<const typename VectorOf<A>::type*>(b);
#if defined(__x86_64__)
  asm("" : "+v"(vector));
#endif
  return vector;
}

// sums += a b for kRows rows of a and kVectors vectors of columns of b, whose rows are contiguous
// and b_row apart, over `depth`.
template <int64_t kRows, int64_t kVectors, class A>
inline void add_products(int64_t depth, TileMatrix<A> a, const A* b, int64_t b_row,
                         typename VectorOf<A>::type (&sums)[kRows][kVectors]) {
  using Vector = typename VectorOf<A>::type;
  for (int64_t k = 0; k < depth; ++k) {
    Vector row[kVectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) row[v] = load_to_register(b + v * VectorOf<A>::kLanes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const A factor = a.data[i * a.row];
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] += factor * row[v];
    }
    a.data += a.column;
    b += b_row;
  }
}

// Statement by statement: an initialiser would be cleared in memory and loaded from there.
template <class A, int64_t kRows, int64_t kVectors>
inline void clear_sums(typename VectorOf<A>::type (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = typename VectorOf<A>::type{};
  }
}

// sums (+)= a b for kTileRows rows of a and kTileColumns columns of b; rows of sums are contiguous
// and sums_row apart. `add` false starts the sums at zero. Not inlined: within a large function the
// compiler moves some of the sums, or of b, out of the registers.
template <class A>
[[gnu::noinline]] void multiply_tile(int64_t depth, const TileMatrix<A>& a, const A* b,
                                     int64_t b_row, bool add, A* sums, int64_t sums_row) {
  using Vector = typename VectorOf<A>::type;
  Vector s[kTileRows][kTileVectors];
  clear_sums<A>(s);
  const auto target = [&](int64_t i) { return reinterpret_cast<Vector*>(sums + i * sums_row); };
  if (add) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < kTileVectors; ++v) s[i][v] = target(i)[v];
    }
  } else {  // memory to write comes while the products are formed, not when stores wait for it
    for (int64_t i = 0; i < kTileRows; ++i) {
      for (int64_t v = 0; v < kTileVectors; ++v) __builtin_prefetch(target(i) + v, 1);
    }
  }
  add_products(depth, a, b, b_row, s);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kTileVectors; ++v) target(i)[v] = s[i][v];
  }
}

}  // namespace xtrain
