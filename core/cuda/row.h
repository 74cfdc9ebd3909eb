#pragma once
// Rows of a matrix in the registers of the threads that work on them.
//
// The threads of a block that have one threadIdx.y share a row. Thread t of n holds the packs t,
// t + n, t + 2n, ... of 16 bytes, so that neighbouring threads touch neighbouring addresses. A row
// that fits is read once, however often the kernel walks over it; a longer one is read anew by each
// walk.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"

namespace xtrain {

// The elements of a pack in the type in which they are computed with.
template <class T>
struct Values {
  Accumulator<T> at[kPackSize<T>];
};

template <class T>
__device__ Values<T> values_of(const Pack<T>& pack) {
  Values<T> values;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) values.at[i] = static_cast<Accumulator<T>>(pack.value[i]);
  return values;
}

template <class T>
__device__ Pack<T> pack_of(const Values<T>& values) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) pack.value[i] = static_cast<T>(values.at[i]);
  return pack;
}

// bf16 goes by pairs: the upper half of a word is an f32 as it stands, and one instruction rounds
// two values to nearest even.
template <>
__device__ inline Values<BFloat16> values_of(const Pack<BFloat16>& pack) {
  Values<BFloat16> values;
  const uint4 words = *reinterpret_cast<const uint4*>(&pack);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.at[2 * i] = __uint_as_float(word[i] << 16);
    values.at[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
  }
  return values;
}

template <>
__device__ inline Pack<BFloat16> pack_of(const Values<BFloat16>& values) {
  uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
        : "=r"(word[i])
        : "f"(values.at[2 * i + 1]), "f"(values.at[2 * i]));
  }
  Pack<BFloat16> pack;
  *reinterpret_cast<uint4*>(&pack) = make_uint4(word[0], word[1], word[2], word[3]);
  return pack;
}

// How the threads of a row lie on its columns. kPacks is the most packs that a thread holds, 0 for
// rows too long to be held. kWhole says that every row consists of whole packs at addresses that
// are multiples of 16 bytes; without it elements are accessed one by one, in the same order.
template <class T, int kPacks_, bool kWhole_>
struct RowShape {
  using Element = T;
  static constexpr int kPacks = kPacks_;
  static constexpr bool kWhole = kWhole_;
  using Column = std::conditional_t<(kPacks > 0), int, int64_t>;
  Column width = 0;

  RowShape() = default;
  __device__ explicit RowShape(int64_t columns) : width(static_cast<Column>(columns)) {}
  // Behind the last row there are empty ones: their threads only take part in reductions.
  __device__ RowShape(int64_t columns, int64_t row, int64_t rows)
      : RowShape(row < rows ? columns : 0) {}

  static __device__ Column column(int pack) {
    return (static_cast<Column>(pack) * blockDim.x + threadIdx.x) * kPackSize<T>;
  }
  // Of a column in a pack that begins within the row.
  __device__ bool contains(Column column) const { return kWhole || column < width; }

  // What lies behind the row is 0.
  __device__ Pack<T> load(const T* row, Column column) const {
    if constexpr (kWhole) {
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
  __device__ void store(T* row, Column column, const Pack<T>& pack) const {
    if constexpr (kWhole) {
      store_pack(row + column, pack);
    } else {
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        if (contains(column + i)) row[column + i] = pack.value[i];
      }
    }
  }

  // f(pack, column) for each pack of the thread.
  template <class F>
  __device__ void for_packs(F&& f) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) < width) f(p, column(p));
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

// The elements of a row: held, or read from memory where they are asked for. A null address stands
// for no row; its elements are 0.
template <class Shape>
class Row {
 public:
  using T = typename Shape::Element;

  __device__ Row(const Shape& shape, const T* row)
      : Row(shape, row, [](typename Shape::Column) { return true; }) {}

  // Only the packs that `wanted` (their first column) are read; the others are 0.
  template <class Wanted>
  __device__ Row(const Shape& shape, const T* row, Wanted&& wanted) : shape_(shape), row_(row) {
    if (Shape::kPacks == 0 || !row) return;
    shape.for_packs([&](int p, auto column) {
      if (wanted(column)) held_[p] = shape.load(row, column);
    });
  }

  __device__ bool given() const { return row_ != nullptr; }

  __device__ Values<T> values(int p, typename Shape::Column column) const {
    if constexpr (Shape::kPacks > 0) return values_of(held_[p]);
    return given() ? values_of(shape_.load(row_, column)) : Values<T>{};
  }

  // f(value) for each element of the thread.
  template <class F>
  __device__ void for_elements(F&& f) const {
    shape_.for_packs(
        [&](int p, auto column) { shape_.for_elements(values(p, column), column, f); });
  }

  // Replaces the elements by f(p, column), rounded, which are written to `target` as well; a row
  // that is not held is read from there afterwards, each element by the thread that wrote it.
  template <class F>
  __device__ void replace(T* target, F&& f) {
    shape_.for_packs([&](int p, auto column) {
      const Pack<T> pack = pack_of<T>(f(p, column));
      shape_.store(target, column, pack);
      if constexpr (Shape::kPacks > 0) held_[p] = pack;
    });
    row_ = target;
  }

 private:
  Shape shape_;
  const T* row_;
  Pack<T> held_[Shape::kPacks > 0 ? Shape::kPacks : 1] = {};
};

// Copies from global to shared memory that go on while the thread does other work. A thread waits
// for, and reads, only what it copied itself, so that there is no barrier.
__device__ inline void copy_pack_behind(void* shared, const void* global) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
// Closes a group of copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Returns when all groups but the last kPending are done.
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// A row that waits in shared memory, which costs no registers; slots is the thread's first of
// Shape::kPacks, blockDim.x * blockDim.y apart. Null address and long rows as in Row.
template <class Shape>
class StagedRow {
 public:
  using T = typename Shape::Element;

  __device__ StagedRow(const Shape& shape, const T* row, Pack<T>* slots)
      : shape_(shape), row_(row), slots_(slots) {}

  // To be followed by commit_copies and wait_for_copies before values.
  __device__ void fetch() const {
    if (Shape::kPacks == 0 || !row_) return;
    shape_.for_packs([&](int p, auto column) {
      if constexpr (Shape::kWhole) {
        copy_pack_behind(slot(p), row_ + column);
      } else {
        *slot(p) = shape_.load(row_, column);
      }
    });
  }

  __device__ bool given() const { return row_ != nullptr; }

  __device__ Values<T> values(int p, typename Shape::Column column) const {
    if (!given()) return Values<T>{};
    if constexpr (Shape::kPacks > 0) return values_of(*slot(p));
    return values_of(shape_.load(row_, column));
  }

 private:
  __device__ Pack<T>* slot(int p) const { return slots_ + p * blockDim.x * blockDim.y; }

  Shape shape_;
  const T* row_;
  Pack<T>* slots_;
};

// The threads of a block and the rows that it works on at a time.
struct RowBlock {
  int packs;    // of a thread; 0: rows are not held
  int threads;  // of a row
  int rows;

  dim3 threads_of_block() const { return dim3(threads, rows); }
};

inline constexpr int kMostRowThreads = 512;

// One warp a row needs no barrier; it does while no thread has more than four packs. Wider rows get
// a block with two packs a thread: many blocks then share a multiprocessor, some of which load
// while others reduce or write.
template <class T>
RowBlock row_block(int64_t width, bool whole) {
  constexpr int kMostPacks = 4, kRowsOfWarps = 8;
  const int64_t packs = ceil_div(width, kPackSize<T>);
  const auto threads_for = [&](int held) {
    return static_cast<int>(ceil_div(ceil_div(packs, held), kWarp) * kWarp);
  };
  if (packs <= kWarp && whole) return {1, kWarp, kRowsOfWarps};
  if (packs <= 2 * kWarp && whole) return {2, kWarp, kRowsOfWarps};
  if (packs <= kMostPacks * kWarp) return {kMostPacks, kWarp, kRowsOfWarps};
  if (packs <= 2 * kMostRowThreads && whole) return {2, threads_for(2), 1};
  if (packs <= kMostPacks * kMostRowThreads) return {kMostPacks, threads_for(kMostPacks), 1};
  return {0, kMostRowThreads, 1};
}

// Calls f(RowShape<T, packs, whole>()).
template <class T, class F>
void with_row_shape(const RowBlock& block, bool whole, F&& f) {
  if (!whole) {
    return block.packs > 0 ? f(RowShape<T, 4, false>()) : f(RowShape<T, 0, false>());
  }
  switch (block.packs) {
    case 1:
      return f(RowShape<T, 1, true>());
    case 2:
      return f(RowShape<T, 2, true>());
    case 4:
      return f(RowShape<T, 4, true>());
    default:
      return f(RowShape<T, 0, true>());
  }
}

}  // namespace xtrain
