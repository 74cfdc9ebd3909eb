#pragma once
// Rows of a matrix in the registers of the threads that work on them.
//
// The threads of a block that have one threadIdx.y share a row. Thread t of n has the packs t,
// t + n, t + 2n, ... of 16 bytes, so that neighbouring threads touch neighbouring addresses. A row
// that fits is held: read once, however often the kernel walks over it. A longer one is read anew
// by each walk.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"

namespace xtrain {

// How a row suits accesses of 16 bytes.
enum class RowFit {
  full,   // each thread has the same number of packs
  whole,  // some threads have fewer
  loose   // elements are accessed one by one, in the same order
};

// How the threads of a row lie on its columns. kPacks is the most packs that a thread holds, 0 for
// rows too long to be held.
template <class T, int kPacks_, RowFit kFit_>
struct RowShape {
  using Element = T;
  static constexpr int kPacks = kPacks_;
  static constexpr bool kHeld = kPacks > 0;
  static constexpr RowFit kFit = kFit_;
  using Column = std::conditional_t<kHeld, int, int64_t>;
  Column width = 0;

  RowShape() = default;
  __device__ explicit RowShape(int64_t columns) : width(static_cast<Column>(columns)) {}

  static __device__ Column column(int pack) {
    return (static_cast<Column>(pack) * blockDim.x + threadIdx.x) * kPackSize<T>;
  }
  // Of a column in a pack that begins within the row.
  __device__ bool contains(Column column) const { return kFit != RowFit::loose || column < width; }

  // What lies behind the row is 0.
  __device__ Pack<T> load(const T* row, Column column) const {
    if constexpr (kFit != RowFit::loose) {
      return load_pack(row + column);
    } else {
      Pack<T> pack;
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        pack.value[i] = contains(column + i) ? row[column + i] : T(0);
      }
      return pack;
    }
  }
  // Of what the kernel does not write, which compilers may then read ahead of its stores.
  __device__ Pack<T> load_constant(const T* row, Column column) const {
    if constexpr (kFit != RowFit::loose) {
      return load_pack_constant(row + column);
    } else {
      return load(row, column);
    }
  }
  __device__ void store(T* row, Column column, const Pack<T>& pack) const {
    if constexpr (kFit != RowFit::loose) {
      store_pack(row + column, pack);
    } else {
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        if (contains(column + i)) row[column + i] = pack.value[i];
      }
    }
  }

  // f(p, column) for each pack of the thread.
  template <class F>
  __device__ void for_packs(F&& f) const {
    if constexpr (kHeld) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (kFit == RowFit::full || column(p) < width) f(p, column(p));
      }
    } else {
      for (int p = 0; column(p) < width; ++p) f(p, column(p));
    }
  }
  // f(value) for each element of a pack that lies within the row.
  template <class F>
  __device__ void for_elements(const Values<T>& values, Column column, F&& f) const {
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (contains(column + i)) f(values.at[i]);
    }
  }
};

// A row whose elements are f(p, column), pack by pack: held, or computed where they are asked for.
template <class Shape, class F>
class Row {
 public:
  using T = typename Shape::Element;
  using Column = typename Shape::Column;

  __device__ Row(const Shape& shape, F f) : shape_(shape), f_(f) {
    if constexpr (Shape::kHeld) {
      shape.for_packs([&](int p, Column column) { held_[p] = f(p, column); });
    }
  }

  __device__ Values<T> values(int p, Column column) const {
    if constexpr (Shape::kHeld) {
      return held_[p];
    } else {
      return f_(p, column);
    }
  }

  // g(value) for each element of the thread.
  template <class G>
  __device__ void for_elements(G&& g) const {
    shape_.for_packs(
        [&](int p, Column column) { shape_.for_elements(values(p, column), column, g); });
  }

 private:
  Shape shape_;
  F f_;
  Values<T> held_[Shape::kHeld ? Shape::kPacks : 1];
};

// body(shape, row, inside) for the rows of a block. Threads behind the last row are given that one,
// with inside false: they take part in reductions, and must write nothing.
template <class Shape, class Body>
__device__ void for_rows(int64_t rows, int64_t width, Body&& body) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < rows; first += stride) {
    const int64_t row = first + threadIdx.y;
    body(Shape(width), min(row, rows - 1), row < rows);
  }
}

// The threads of a block and the rows that it works on at a time.
struct RowBlock {
  RowFit fit;
  int packs;    // of a thread; 0: rows are not held
  int threads;  // of a row
  int rows;

  dim3 threads_of_block() const { return dim3(threads, rows); }
};

inline constexpr int kMostRowPacks = 4;
inline constexpr int kMostRowThreads = 512;  // of a block

// A block for rows of which a thread holds at most `packs` packs. `whole`: every row consists of
// whole packs at addresses that are multiples of 16 bytes. most_threads(p) is the most threads that
// a block may have when each holds p packs.
template <class T, class F>
RowBlock row_block(int64_t width, bool whole, int packs, F&& most_threads) {
  constexpr int kThreads = 256;  // of a block, unless a row has more
  const int64_t in_row = ceil_div(width, kPackSize<T>);
  const auto block = [&](RowFit fit, int held, int64_t threads) {
    return RowBlock{fit, held, static_cast<int>(threads),
                    static_cast<int>(std::max<int64_t>(1, kThreads / threads))};
  };
  for (int held = packs; whole && held > 0; --held) {
    const int64_t threads = in_row / held;
    if (in_row % (held * kWarp) == 0 && threads <= most_threads(held)) {
      return block(RowFit::full, held, threads);
    }
  }
  const RowFit fit = whole ? RowFit::whole : RowFit::loose;
  const int64_t threads = ceil_div(in_row, kWarp * kMostRowPacks) * kWarp;
  if (threads <= most_threads(kMostRowPacks)) return block(fit, kMostRowPacks, threads);
  return block(fit, 0, most_threads(0));
}
template <class T>
RowBlock row_block(int64_t width, bool whole) {
  return row_block<T>(width, whole, kMostRowPacks, [](int) { return kMostRowThreads; });
}

// Calls f(RowShape<T, packs, fit>()); rows that are not full have shapes of kMostRowPacks or 0.
template <class T, class F>
void with_row_shape(const RowBlock& block, F&& f) {
  if (block.fit == RowFit::whole) {
    return block.packs > 0 ? f(RowShape<T, kMostRowPacks, RowFit::whole>())
                           : f(RowShape<T, 0, RowFit::whole>());
  }
  if (block.fit == RowFit::loose) {
    return block.packs > 0 ? f(RowShape<T, kMostRowPacks, RowFit::loose>())
                           : f(RowShape<T, 0, RowFit::loose>());
  }
  switch (block.packs) {
    case 1:
      return f(RowShape<T, 1, RowFit::full>());
    case 2:
      return f(RowShape<T, 2, RowFit::full>());
    case 3:
      return f(RowShape<T, 3, RowFit::full>());
    default:
      return f(RowShape<T, 4, RowFit::full>());
  }
}

}  // namespace xtrain
