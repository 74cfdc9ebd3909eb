#pragma once
// Packing: copies of operands in the order in which multiply_tile reads them.

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/cpu/register_tile.h"

namespace xtrain {

// Lines to pack side by side for all tiles before going on to the next lines: the tiles share cache
// lines, and so few lines stay in L1 and in the address translation buffer meanwhile.
inline constexpr int64_t kLinesAtOnce = 16;

// A square of as many vectors as a vector has lanes.
template <class A>
struct VectorSquare {
  static constexpr int kLanes = kVectorBytes / int{sizeof(A)};
  typedef A Vector __attribute__((vector_size(kVectorBytes)));
  Vector rows[kLanes];

  // Inlined so that the rows stay in registers. Lane l of row i changes places with lane i of row
  // l. Swapping one bit of i with the same bit of l is a pass of two-vector shuffles; passes over
  // all bits make the transpose.
  [[gnu::always_inline]] void transpose() {
    transpose_bits<1>(std::make_integer_sequence<int, kLanes>{});
  }

 private:
  template <int bit, int... l>
  [[gnu::always_inline]] void transpose_bits(std::integer_sequence<int, l...> lanes) {
    if constexpr (bit < kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i & bit) continue;
        const Vector x = rows[i], y = rows[i + bit];
        rows[i] = __builtin_shufflevector(x, y, (l & bit ? kLanes + l - bit : l)...);
        rows[i + bit] = __builtin_shufflevector(x, y, (l & bit ? kLanes + l : l + bit)...);
      }
      transpose_bits<2 * bit>(lanes);
    }
  }
};

// panel[k * Width + j] = lines[k * ld + j] for j < count, 0 beyond; k < depth.
template <int64_t Width, class T, class A>
void pack_lines(const T* lines, int64_t ld, int64_t count, int64_t depth, A* panel) {
  if (count < Width) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < Width; ++j) {
        panel[k * Width + j] = j < count ? static_cast<A>(lines[k * ld + j]) : A{0};
      }
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    // Lines are far apart, which hides them from the processor's own prefetching. An address beyond
    // the matrix is ignored.
    __builtin_prefetch(lines + (k + kLinesAtOnce) * ld);
#pragma omp simd
    for (int64_t j = 0; j < Width; ++j) panel[k * Width + j] = static_cast<A>(lines[k * ld + j]);
  }
}

// panel[k * Width + j] = lines[j * ld + k] for j < count, 0 beyond; k < depth.
template <int64_t Width, class T, class A>
void pack_transposed(const T* lines, int64_t ld, int64_t count, int64_t depth, A* panel) {
  using Square = VectorSquare<A>;
  constexpr int64_t kSide = Square::kLanes;
  static_assert(Width % kSide == 0);
  const int64_t square_count = count / kSide * kSide, square_depth = depth / kSide * kSide;
  for (int64_t j = 0; j < square_count; j += kSide) {
    for (int64_t k = 0; k < square_depth; k += kSide) {
      Square square;
      for (int64_t i = 0; i < kSide; ++i) {
        A line[kSide];
        for (int64_t l = 0; l < kSide; ++l) line[l] = static_cast<A>(lines[(j + i) * ld + k + l]);
        std::memcpy(&square.rows[i], line, sizeof(line));
      }
      square.transpose();
      for (int64_t i = 0; i < kSide; ++i) {
        std::memcpy(panel + (k + i) * Width + j, &square.rows[i], kVectorBytes);
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k) {  // what no square covers
    for (int64_t j = k < square_depth ? square_count : 0; j < Width; ++j) {
      panel[k * Width + j] = j < count ? static_cast<A>(lines[j * ld + k]) : A{0};
    }
  }
}

}  // namespace xtrain
