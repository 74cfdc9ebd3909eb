#pragma once
// Walking several tensors of one shape in step, whatever their strides.

#include <array>

#include "core/parallel.h"

namespace xtrain {

// A shape shared by N tensors, with dimensions merged wherever all of them allow it, so that
// contiguous tensors become a single row.
template <int N>
struct StridedLoop {
  Shape shape;
  std::array<Strides, N> strides;

  StridedLoop(const Shape& full, const std::array<Strides, N>& full_strides) {
    for (int i = 0; i < full.rank(); ++i) {
      if (full[i] == 1) continue;
      if (shape.rank() > 0 && merges(full, full_strides, i)) {
        const int last = shape.rank() - 1;
        shape[last] *= full[i];
        for (int t = 0; t < N; ++t) strides[t][last] = full_strides[t][i];
      } else {
        shape.push_back(full[i]);
        for (int t = 0; t < N; ++t) strides[t].push_back(full_strides[t][i]);
      }
    }
    if (shape.rank() == 0) {
      shape.push_back(numel_of(full));
      for (int t = 0; t < N; ++t) strides[t].push_back(1);
    }
  }

  int64_t row_length() const { return shape[shape.rank() - 1]; }
  int64_t row_stride(int tensor) const { return strides[tensor][shape.rank() - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < shape.rank(); ++i) n *= shape[i];
    return n;
  }
  // Where row `row` starts in each tensor, in elements from its first.
  std::array<int64_t, N> row_offsets(int64_t row) const {
    std::array<int64_t, N> offsets{};
    for (int i = shape.rank() - 2; i >= 0; --i) {
      const int64_t index = row % shape[i];
      row /= shape[i];
      for (int t = 0; t < N; ++t) offsets[t] += index * strides[t][i];
    }
    return offsets;
  }

 private:
  bool merges(const Shape& full, const std::array<Strides, N>& full_strides, int i) const {
    const int last = shape.rank() - 1;
    for (int t = 0; t < N; ++t) {
      if (strides[t][last] != full_strides[t][i] * full[i]) return false;
    }
    return true;
  }
};

// body(offsets, length) for pieces of rows: `offsets` into each tensor, `length` elements at
// the loop's row strides. Pieces run in parallel.
template <int N, class Body>
void parallel_strided(const Cpu& cpu, const StridedLoop<N>& loop, Body&& body) {
  const int64_t length = loop.row_length(), rows = loop.rows();
  if (length == 0 || rows == 0) return;
  if (rows == 1) {
    parallel_blocks(cpu, length, kElementBlock, [&](int64_t begin, int64_t end) {
      std::array<int64_t, N> offsets;
      for (int t = 0; t < N; ++t) offsets[t] = begin * loop.row_stride(t);
      body(offsets, end - begin);
    });
    return;
  }
  const int64_t block = std::max<int64_t>(1, kElementBlock / length);
  parallel_blocks(cpu, rows, block, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(loop.row_offsets(row), length);
  });
}

}  // namespace xtrain
