#pragma once
// Some elements of as many columns as a vector has lanes, by rows in the registers. Columns are
// contiguous and may be of a narrower type than the sums they go into.

#include <cstring>
#include <utility>

#include "core/cpu/register_tile.h"
#include "core/dtype.h"

namespace xtrain {

// Pieces of 16 bytes in the type of the sums are what a vector is put together of: transposing
// within them needs no exchange between the halves of a vector, which is slow.
inline constexpr int64_t kPieceBytes = 16;

namespace column_strip_detail {

// What a bfloat16 is for vectors.
template <class T>
struct Element {
  using type = T;
};
template <>
struct Element<BFloat16> {
  using type = uint16_t;
};

template <class E, int64_t kCount>
struct Lanes {
  typedef E type __attribute__((vector_size(kCount * sizeof(E))));
};

template <class X, int... l>
[[gnu::always_inline]] inline auto joined(X low, X high, std::integer_sequence<int, l...>) {
  return __builtin_shufflevector(low, high, l...);
}

// kPiece elements of each of kPieces lines, line_step apart, one behind the other.
template <class E, int64_t kPiece, int64_t kPieces, class T>
[[gnu::always_inline]] inline auto load_pieces(const T* line, int64_t line_step) {
  if constexpr (kPieces == 1) {
    typename Lanes<E, kPiece>::type piece;
    std::memcpy(&piece, line, sizeof(piece));
    return piece;
  } else {
    const auto low = load_pieces<E, kPiece, kPieces / 2>(line, line_step);
    const auto high =
        load_pieces<E, kPiece, kPieces / 2>(line + kPieces / 2 * line_step, line_step);
    return joined(low, high, std::make_integer_sequence<int, kPiece * kPieces>{});
  }
}

// In the type of the sums.
template <class V>
[[gnu::always_inline]] inline V widened(V x) {
  return x;
}
template <class V>
[[gnu::always_inline]] inline V widened(typename Lanes<uint16_t, VectorOf<float>::kLanes>::type x) {
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
  return reinterpret_cast<V>(__builtin_convertvector(x, Words) << 16);
}

}  // namespace column_strip_detail

// A vector of consecutive elements, in the type of the sums.
template <class A, class T>
[[gnu::always_inline]] inline typename VectorOf<A>::type load_lanes(const T* line) {
  using namespace column_strip_detail;
  using V = typename Lanes<A, VectorOf<A>::kLanes>::type;
  return widened<V>(load_pieces<typename Element<T>::type, VectorOf<A>::kLanes, 1>(line, 0));
}

// `count` elements that are `step` apart, zeros behind them.
template <class A, class T>
inline typename VectorOf<A>::type gather_lanes(const T* first, int64_t step, int64_t count) {
  A values[VectorOf<A>::kLanes] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<A>(first[i * step]);
  return load_lanes<A>(values);
}

template <class A>
struct ColumnStrip {
  static constexpr int64_t kLanes = VectorOf<A>::kLanes;
  static constexpr int64_t kDepth = kPieceBytes / int64_t{sizeof(A)};  // 4 of f32, 2 of f64
  typedef A Vector __attribute__((vector_size(kVectorBytes)));
  Vector rows[kDepth];  // lane l of row i: element i of column l

  // Columns of at least kDepth elements, ld apart.
  template <class T>
  [[gnu::always_inline]] void load(const T* columns, int64_t ld) {
    using namespace column_strip_detail;
    using E = typename Element<T>::type;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kDepth; ++i) {  // piece p of row i: of column p * kDepth + i
      rows[i] =
          widened<Vector>(load_pieces<E, kDepth, kLanes / kDepth>(columns + i * ld, kDepth * ld));
    }
    // The transpose of a square is so many perfect shuffles as its side has bits.
    for (int64_t side = 1; side < kDepth; side *= 2) {
      shuffle(std::make_integer_sequence<int, int{kLanes}>{});
    }
  }

 private:
  // Rows i and i + kDepth / 2, interleaved within each piece, become rows 2 i and 2 i + 1.
  template <int... l>
  [[gnu::always_inline]] void shuffle(std::integer_sequence<int, l...>) {
    constexpr int kHalf = kDepth / 2;
    Vector mixed[kDepth];
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; ++i) {
      const Vector x = rows[i], y = rows[i + kHalf];
      mixed[2 * i] = __builtin_shufflevector(x, y, lane(l, 0)...);
      mixed[2 * i + 1] = __builtin_shufflevector(x, y, lane(l, kHalf)...);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kDepth; ++i) rows[i] = mixed[i];
  }
  // Which lane of two vectors comes to lane l when their pieces are interleaved from `first` on.
  static constexpr int lane(int l, int first) {
    const int within = l % int{kDepth};
    return l - within + first + within / 2 + within % 2 * int{kLanes};
  }
};

}  // namespace xtrain
