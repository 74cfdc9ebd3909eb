#pragma once
// The tiled product of few rows, as when one token a sequence is decoded: each element of b is used
// so seldom that a packed copy of it would cost more than the product.
//
// Where b lies by rows, its lines are read as they lie, a few at a time, and the sums of a row of c
// stay in the L1. Where it lies by columns, as a trained weight [out, in] does for x weight^T, a
// strip of it is loaded along k, transposed in the registers and multiplied there, and its sums
// stay in the registers over all of k; that costs about twice as much. Each sum runs over k in
// order, so its bits are those of gemm_tiled.cpp, and those of any other number of rows.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/cpu/column_strip.h"
#include "core/cpu/gemm_backends.h"
#include "core/cpu/gemm_scratch.h"

namespace xtrain::few_rows {

// Elements of b worth waking a thread.
inline constexpr int64_t kPieceElements = int64_t{1} << 17;

// Columns of a piece of b that lies by rows. Longer pieces of a line come faster from memory, but
// every thread shall have some.
inline constexpr int64_t kFewestColumns = 64, kFullColumns = 512;

// Sums in the L1.
inline constexpr int64_t kSums = 4096;

// Calls f(integral_constant) with the number `count` in 1..most.
template <int64_t kMost, int64_t kCount = 1, class F>
void with_count(int64_t count, F&& f) {
  if constexpr (kCount < kMost) {
    if (count != kCount) return with_count<kMost, kCount + 1>(count, f);
  }
  f(std::integral_constant<int64_t, kCount>());
}

// --- b by rows -----------------------------------------------------------------------------------

// sums[r] += a[i, r] b[i] for kLines lines of b and kVectors vectors of columns. a lies by k: kRows
// elements for each. Rows of sums are sums_row apart.
template <int64_t kLines, int64_t kVectors, int64_t kRows, class T, class A>
[[gnu::always_inline]] inline void add_lines(const A* a, const T* b, int64_t ld, A* sums,
                                             int64_t sums_row) {
  using Vector = typename VectorOf<A>::type;
  constexpr int64_t kLanes = VectorOf<A>::kLanes;
  Vector s[kRows][kVectors];
  const auto target = [&](int64_t r) { return reinterpret_cast<Vector*>(sums + r * sums_row); };
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) s[r][v] = target(r)[v];
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kLines; ++i) {
    Vector line[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) line[v] = load_lanes<A>(b + i * ld + v * kLanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) s[r][v] += a[i * kRows + r] * line[v];
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) target(r)[v] = s[r][v];
  }
}

// The same over whole vectors of columns.
template <int64_t kLines, int64_t kRows, class T, class A>
inline void add_line_parts(const A* a, const T* b, int64_t ld, int64_t columns, A* sums,
                           int64_t sums_row) {
  constexpr int64_t kLanes = VectorOf<A>::kLanes;
  int64_t j = 0;
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    add_lines<kLines, 2, kRows>(a, b + j, ld, sums + j, sums_row);
  }
  if (j < columns) add_lines<kLines, 1, kRows>(a, b + j, ld, sums + j, sums_row);
}

// c, whole vectors of columns of it.
template <int64_t kRows, class T, class A, class Out>
void multiply_by_lines(const GemmProblem& p, const A* a, const T* b, int64_t columns, Out* c) {
  constexpr int64_t kLanes = VectorOf<A>::kLanes, kLines = 4;
  constexpr int64_t kColumns = kSums / kRows / kLanes * kLanes;
  alignas(kVectorBytes) A sums[kRows * kColumns];
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t count = std::min(kColumns, columns - first);
    std::fill_n(sums, kRows * count, A{0});
    int64_t k = 0;
    for (; k + kLines <= p.k; k += kLines) {
      add_line_parts<kLines, kRows>(a + k * kRows, b + k * p.b.ld + first, p.b.ld, count, sums,
                                    count);
    }
    for (; k < p.k; ++k) {
      add_line_parts<1, kRows>(a + k * kRows, b + k * p.b.ld + first, p.b.ld, count, sums, count);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      store_sums(p, count, sums + r * count, c + r * p.ldc + first);
    }
  }
}

// --- b by columns --------------------------------------------------------------------------------

// Bytes of a column of b that are asked for ahead of their use.
inline constexpr int64_t kPrefetchBytes = 512;

template <class A, int64_t kVectors, int64_t kRows>
using Sums = typename VectorOf<A>::type[kVectors][kRows];

// sums[v][r] += a[i, r] b[i, v] for the elements of a strip of each vector of columns.
template <int64_t kVectors, int64_t kRows, class T, class A>
[[gnu::always_inline]] inline void add_strips(const T* columns, int64_t ld, const A* a,
                                              Sums<A, kVectors, kRows>& sums) {
  using Strip = ColumnStrip<A>;
  Strip strips[kVectors];
#pragma GCC unroll 2
  for (int64_t v = 0; v < kVectors; ++v) strips[v].load(columns + v * Strip::kLanes * ld, ld);
#pragma GCC unroll 4
  for (int64_t i = 0; i < Strip::kDepth; ++i) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) sums[v][r] += a[i * kRows + r] * strips[v].rows[i];
    }
  }
}

// The same over all of k.
template <int64_t kVectors, int64_t kRows, class T, class A>
inline void add_columns(const GemmProblem& p, const A* a, const T* b,
                        Sums<A, kVectors, kRows>& sums) {
  using Strip = ColumnStrip<A>;
  constexpr int64_t kColumns = kVectors * Strip::kLanes, kLine = 64 / int64_t{sizeof(T)};
  constexpr int64_t kAhead = kPrefetchBytes / int64_t{sizeof(T)};
  // So many columns at once are more than the processor's own prefetching follows. Short ones are
  // followed by those of the next vectors. An address beyond the matrix is ignored.
  const int64_t ahead = p.k > 2 * kAhead ? kAhead : kColumns * p.b.ld;
  int64_t k = 0;
  for (; k + kLine <= p.k; k += kLine) {
    for (int64_t i = 0; i < kColumns; ++i) __builtin_prefetch(b + i * p.b.ld + k + ahead);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLine; i += Strip::kDepth) {
      add_strips<kVectors, kRows>(b + k + i, p.b.ld, a + (k + i) * kRows, sums);
    }
  }
  for (; k + Strip::kDepth <= p.k; k += Strip::kDepth) {
    add_strips<kVectors, kRows>(b + k, p.b.ld, a + k * kRows, sums);
  }
  for (; k < p.k; ++k) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto line = gather_lanes<A>(b + v * Strip::kLanes * p.b.ld + k, p.b.ld, Strip::kLanes);
      for (int64_t r = 0; r < kRows; ++r) sums[v][r] += a[k * kRows + r] * line;
    }
  }
}

// c from the sums of kVectors vectors, of which `columns` columns are there.
template <int64_t kVectors, int64_t kRows, class A, class Out>
inline void store_vectors(const GemmProblem& p, const Sums<A, kVectors, kRows>& sums,
                          int64_t columns, Out* c) {
  constexpr int64_t kLanes = VectorOf<A>::kLanes;
  for (int64_t v = 0; v < kVectors; ++v) {
    for (int64_t r = 0; r < kRows; ++r) {
      A values[kLanes];
      std::memcpy(values, &sums[v][r], sizeof(values));
      store_sums(p, std::min(kLanes, columns - v * kLanes), values, c + r * p.ldc + v * kLanes);
    }
  }
}

// c, whole vectors of columns of it. Returns how many columns are left.
template <int64_t kVectors, int64_t kRows, class T, class A, class Out>
int64_t multiply_by_strips(const GemmProblem& p, const A* a, const T* b, int64_t columns, Out* c) {
  constexpr int64_t kColumns = kVectors * VectorOf<A>::kLanes;
  for (; columns >= kColumns; columns -= kColumns, b += kColumns * p.b.ld, c += kColumns) {
    Sums<A, kVectors, kRows> sums;
    clear_sums<A>(sums);
    add_columns<kVectors, kRows>(p, a, b, sums);
    store_vectors<kVectors, kRows, A>(p, sums, kColumns, c);
  }
  return columns;
}

// A sum waits for the product before it. Two vectors side by side keep the processor at work where
// a has few rows, unless columns so far apart would drive each other from the L1.
template <int64_t kRows, class T, class A, class Out>
void multiply_by_strips(const GemmProblem& p, const A* a, const T* b, int64_t columns, Out* c) {
  constexpr int64_t kFarBytes = 2048, kMostColumns = 16;
  int64_t left = columns;
  if constexpr (kRows <= 3 && 2 * VectorOf<A>::kLanes <= kMostColumns) {
    if (p.b.ld * int64_t{sizeof(T)} <= kFarBytes)
      left = multiply_by_strips<2, kRows>(p, a, b, left, c);
  }
  const int64_t done = columns - left;
  multiply_by_strips<1, kRows>(p, a, b + done * p.b.ld, left, c + done);
}

// --- both ----------------------------------------------------------------------------------------

// c of fewer columns than a vector has.
template <int64_t kRows, class T, class A, class Out>
void multiply_edge(const GemmProblem& p, const A* a, const T* b, int64_t columns, Out* c) {
  const int64_t row = p.b.transposed ? 1 : p.b.ld, column = p.b.transposed ? p.b.ld : 1;
  Sums<A, 1, kRows> sums;
  clear_sums<A>(sums);
  for (int64_t k = 0; k < p.k; ++k) {
    const auto line = gather_lanes<A>(b + k * row, column, columns);
    for (int64_t r = 0; r < kRows; ++r) sums[0][r] += a[k * kRows + r] * line;
  }
  store_vectors<1, kRows, A>(p, sums, columns, c);
}

// Columns [begin, end) of c for kRows rows.
template <int64_t kRows, class T, class A, class Out>
void multiply_columns(const GemmProblem& p, const A* a, const T* b, int64_t begin, int64_t end,
                      Out* c) {
  const int64_t edge = (end - begin) % VectorOf<A>::kLanes, whole = end - begin - edge;
  const T* const first = b + offset_in(p.b, 0, begin);
  p.b.transposed ? multiply_by_strips<kRows>(p, a, first, whole, c + begin)
                 : multiply_by_lines<kRows>(p, a, first, whole, c + begin);
  if (edge > 0) multiply_edge<kRows>(p, a, b + offset_in(p.b, 0, end - edge), edge, c + end - edge);
}

// Columns of a piece for so many threads.
template <class A>
int64_t piece_columns(const GemmProblem& p, int threads) {
  constexpr int64_t kLanes = VectorOf<A>::kLanes;
  const int64_t fewest =
      p.b.transposed ? kLanes : std::clamp(p.n / threads, kFewestColumns, kFullColumns);
  const int64_t wanted = kPieceElements / std::max<int64_t>(1, p.k);
  return round_up(std::min(p.n, std::max(fewest, wanted)), kLanes);
}

// The elements of a in the type of the sums and by k, so that those of one k lie side by side.
template <class T, class A>
void pack_factors(const GemmProblem& p, const T* a, A* target) {
  for (int64_t r = 0; r < p.m; ++r) {
    for (int64_t k = 0; k < p.k; ++k) {
      target[k * p.m + r] = static_cast<A>(a[offset_in(p.a, r, k)]);
    }
  }
}

}  // namespace xtrain::few_rows

namespace xtrain {

// p.m must be in 1..kTileRows.
template <class T, class Out>
void few_rows_gemm(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  using A = Accumulator<T>;
  const int64_t columns = few_rows::piece_columns<A>(p, cpu.threads()),
                pieces = ceil_div(p.n, columns);
  const int64_t elements = std::max<int64_t>(1, p.k) * std::min(columns, p.n);
  const int64_t together = std::max<int64_t>(1, few_rows::kPieceElements / elements);
  Scratch<A> packed(cpu.ctx, p.batches() * p.m * p.k);
  for (int64_t batch = 0; batch < p.batches(); ++batch) {
    few_rows::pack_factors(p, a + p.batch_offset(p.batch_stride_a, batch),
                           packed.data() + batch * p.m * p.k);
  }
  few_rows::with_count<kTileRows>(p.m, [&](auto rows) {
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
