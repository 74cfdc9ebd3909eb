#pragma once
// Products of few rows with a matrix whose lines are contiguous, y = x W^T, as when a model writes.
// All of W is read for them, so the rate of memory is the limit and every other kernel, made for
// tiles of rows, stays below it.
//
// Some warps of a block compute one column of y for all rows: their lanes read a line of W in packs
// of 16 bytes, once, and add up in a fixed order. How many warps share a line follows from the
// sizes of W: as many as it takes to have all of it on its way at once. So a result depends on its
// row of x, its line of W and the sizes of W, not on how many rows there are.

#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"

namespace xtrain {

inline constexpr int kMostFewRows = 8;

// The lines of a matrix [n, k]; they begin at multiples of 16 bytes and are whole packs.
template <class T>
struct MatrixLines {
  const T* first;
  int64_t ld;  // elements from one to the next
  int64_t n, k;
  int warps;  // that share a line
};

// A warp's part of a column of y, in a block of kWarps warps.
template <int kRows, int kWarps, class T>
class FewRowsColumn {
 public:
  using A = Accumulator<T>;

  // Asks for the first packs of the line.
  __device__ explicit FewRowsColumn(const MatrixLines<T>& w)
      : warps_(w.warps), part_(warp() % w.warps), k_(w.k) {
    column_ = int64_t{blockIdx.x} * (kWarps / w.warps) + warp() / w.warps;
    inside_ = column_ < w.n;
    line_ = w.first + column_ * w.ld;
    step_ = int64_t{kWarp} * kPackSize<T> * w.warps;
    begin_ = int64_t{part_ * kWarp + lane()} * kPackSize<T>;
    load(begin_);
  }

  bool __device__ inside() const { return inside_; }
  int64_t __device__ column() const { return column_; }

  // Adds the products with rows 0 .. m - 1; row(r, k) is the pack of row r from k on.
  template <class F>
  __device__ void multiply(int m, F&& row) {
    for (int64_t first = begin_; inside_ && first < k_; first += step_ * kAhead) {
      if (first > begin_) load(first);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t k = first + i * step_;
        if (k < k_) add(m, ahead_[i], [&](int r) { return row(r, k); });
      }
    }
  }

  // store(r, column, sum) for each row, by one thread. All threads of the block must call it.
  template <class F>
  __device__ void store(int m, F&& store) {
    __shared__ A sums[kWarps][kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= m) break;
      sum_[r] = warp_reduce(sum_[r], Add());
      if (lane() == 0) sums[warp()][r] = sum_[r];
    }
    __syncthreads();
    // One thread puts the parts of a column together, in their order.
    const int r = lane();
    if (!inside_ || part_ > 0 || r >= kRows || r >= m) return;
    A total = sums[warp()][r];
    for (int i = 1; i < warps_; ++i) total += sums[warp() + i][r];
    store(r, column_, total);
  }

 private:
  static constexpr int kAhead = 4;  // packs of a lane that are on their way together

  static __device__ int warp() {
    return threadIdx.x / kWarp;
  }
  static __device__ int lane() {
    return threadIdx.x % kWarp;
  }

  __device__ void load(int64_t first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * step_;
      if (inside_ && k < k_) ahead_[i] = load_pack_streaming(line_ + k);
    }
  }

  template <class F>
  __device__ void add(int m, const Pack<T>& pack, F&& row) {
    const Values<T> w = values_of(pack);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= m) break;
      const Values<T> x = values_of(row(r));
#pragma unroll
      for (int c = 0; c < kPackSize<T>; ++c) sum_[r] += x.at[c] * w.at[c];
    }
  }

  int warps_, part_;
  bool inside_;
  int64_t column_, k_, step_, begin_;
  const T* line_;
  Pack<T> ahead_[kAhead];
  A sum_[kRows] = {};
};

// How many of a block's warps should share each of `lines` lines of k elements: enough for
// `resident` warps a multiprocessor, as long as each has two steps of its line.
template <class T>
int warps_of_line(const Cuda& cuda, int64_t lines, int64_t k, int most, int resident) {
  const int64_t wanted = int64_t{resident} * gpu_of(cuda).multiprocessors;
  int warps = 1;
  while (warps < most && lines * warps < wanted && k >= 2 * warps * kWarp * kPackSize<T>) {
    warps *= 2;
  }
  return warps;
}

// Calls f(std::integral_constant<int, kRows>()) with the kernel's room for m rows, which are 1 to
// kMostFewRows.
template <class F>
void with_room_for_rows(int64_t m, F&& f) {
  if (m == 1) return f(std::integral_constant<int, 1>());
  if (m == 2) return f(std::integral_constant<int, 2>());
  if (m <= 4) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, kMostFewRows>());
}

}  // namespace xtrain
