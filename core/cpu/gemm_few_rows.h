#pragma once
// The tiled product of few rows, as when one token a sequence is decoded: each element of b is used
// so seldom that a packed copy of it would cost more than the product.
//
// A vector of columns of c stays in the registers over all of k. Where b lies by columns, as a
// weight [out, in] does for x weight^T, a square of it is loaded along k, transposed in the
// registers and multiplied there. Each sum runs over k in order, so its bits are those of
// gemm_tiled.cpp, and those of any other number of rows.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/cpu/gemm_backends.h"
#include "core/cpu/gemm_pack.h"
#include "core/cpu/gemm_scratch.h"

namespace xtrain::few_rows {

// Elements of b worth waking a thread.
inline constexpr int64_t kPieceElements = int64_t{1} << 17;

inline constexpr int64_t kPrefetch = 128;  // elements ahead

// A vector of elements in the type of the sums.
inline VectorSquare<double>::Vector load_vector(const double* line) {
  VectorSquare<double>::Vector vector;
  std::memcpy(&vector, line, sizeof(vector));
  return vector;
}
inline VectorSquare<float>::Vector load_vector(const float* line) {
  VectorSquare<float>::Vector vector;
  std::memcpy(&vector, line, sizeof(vector));
  return vector;
}
inline VectorSquare<float>::Vector load_vector(const BFloat16* line) {
  typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
  Halves halves;
  std::memcpy(&halves, line, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  return reinterpret_cast<VectorSquare<float>::Vector>(words);
}

// `count` elements, zeros behind them.
template <class A, class T>
inline typename VectorSquare<A>::Vector load_line(const T* line, int64_t count) {
  constexpr int64_t kLanes = VectorSquare<A>::kLanes;
  if (count >= kLanes) return load_vector(line);
  T values[kLanes] = {};
  std::copy_n(line, count, values);
  return load_vector(values);
}

// sums[r] += a[r] b for one vector of columns of b, of which `columns` are there. a lies by k:
// kRows elements for each.
template <int64_t kRows, class T, class A>
inline void add_columns(const GemmProblem& p, const A* a, const T* b, int64_t columns,
                        typename VectorSquare<A>::Vector (&sums)[kRows]) {
  if (!p.b.transposed) {
    for (int64_t k = 0; k < p.k; ++k) {
      const auto line = load_line<A>(b + k * p.b.ld, columns);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) sums[r] += a[k * kRows + r] * line;
    }
    return;
  }
  constexpr int64_t kSide = VectorSquare<A>::kLanes;
  VectorSquare<A> square;
  int64_t k = 0;
  if (columns >= kSide) {
    for (; k + kSide <= p.k; k += kSide) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i) {
        const T* line = b + i * p.b.ld + k;
        // So many lines at once are more than the processor's own prefetching follows. An address
        // beyond the matrix is ignored.
        __builtin_prefetch(line + kPrefetch);
        square.rows[i] = load_vector(line);
      }
      square.transpose();
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i) {
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r) sums[r] += a[(k + i) * kRows + r] * square.rows[i];
      }
    }
  }
  for (; k < p.k; k += kSide) {  // squares that are not whole
    const int64_t depth = std::min(kSide, p.k - k);
    for (int64_t i = 0; i < kSide; ++i) {
      square.rows[i] = load_line<A>(b + std::min(i, columns - 1) * p.b.ld + k, depth);
    }
    square.transpose();
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t r = 0; r < kRows; ++r) sums[r] += a[(k + i) * kRows + r] * square.rows[i];
    }
  }
}

// Columns [begin, end) of c for kRows rows.
template <int64_t kRows, class T, class A, class Out>
void multiply_columns(const GemmProblem& p, const A* a, const T* b, int64_t begin, int64_t end,
                      Out* c) {
  using Vector = typename VectorSquare<A>::Vector;
  constexpr int64_t kLanes = VectorSquare<A>::kLanes;
  for (int64_t column = begin; column < end; column += kLanes) {
    const int64_t columns = std::min(kLanes, end - column);
    Vector sums[kRows] = {};
    add_columns<kRows>(p, a, b + offset_in(p.b, 0, column), columns, sums);
    for (int64_t r = 0; r < kRows; ++r) {
      A values[kLanes];
      std::memcpy(values, &sums[r], sizeof(values));
      store_sums(p, columns, values, c + r * p.ldc + column);
    }
  }
}

// Calls f(std::integral_constant<int64_t, rows>) for rows in 1..kTileRows.
template <int64_t kRows = 1, class F>
void with_rows(int64_t rows, F&& f) {
  if constexpr (kRows < kTileRows) {
    if (rows != kRows) return with_rows<kRows + 1>(rows, f);
  }
  f(std::integral_constant<int64_t, kRows>());
}

}  // namespace xtrain::few_rows

namespace xtrain {

// p.m must be in 1..kTileRows.
template <class T, class Out>
void few_rows_gemm(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  using A = Accumulator<T>;
  constexpr int64_t kLanes = VectorSquare<A>::kLanes;
  const int64_t depth = std::max<int64_t>(1, p.k);
  const int64_t columns = round_up(
      std::clamp<int64_t>(few_rows::kPieceElements / depth, kLanes, round_up(p.n, kLanes)), kLanes);
  const int64_t pieces = ceil_div(p.n, columns);
  const int64_t together =
      std::max<int64_t>(1, few_rows::kPieceElements / (depth * std::min(columns, p.n)));
  // By k, so that the elements of one k lie side by side.
  Scratch<A> packed(cpu.ctx, p.batches() * p.m * p.k);
  for (int64_t batch = 0; batch < p.batches(); ++batch) {
    const T* matrix = a + p.batch_offset(p.batch_stride_a, batch);
    A* target = packed.data() + batch * p.m * p.k;
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t k = 0; k < p.k; ++k) {
        target[k * p.m + r] = static_cast<A>(matrix[offset_in(p.a, r, k)]);
      }
    }
  }
  few_rows::with_rows(p.m, [&](auto rows) {
    parallel_blocks(
        cpu, p.batches() * pieces, pieces > 1 ? 1 : together, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t batch = i / pieces, first = i % pieces * columns;
            few_rows::multiply_columns<rows()>(
                p, packed.data() + batch * p.m * p.k, b + p.batch_offset(p.batch_stride_b, batch),
                first, std::min(p.n, first + columns), c + p.batch_offset(p.batch_stride_c, batch));
          }
        });
  });
}

}  // namespace xtrain
