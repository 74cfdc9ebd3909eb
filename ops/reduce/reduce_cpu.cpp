#include <vector>

#include "core/parallel.h"
#include "ops/reduce/reduce_kernels.h"

namespace xtrain {
namespace {

// Additions in the accumulator type before the result moves on to f64.
constexpr int64_t kRun = 64;

// The sum of n consecutive elements: kLanes sums side by side, so that the loop is vector code
// whose order of additions is written down here and not chosen by the compiler.
template <class T>
double sum_of_row(const T* x, int64_t n) {
  using A = Accumulator<T>;
  constexpr int64_t kLanes = 16;
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kRun * kLanes) {
    const int64_t count = std::min(kRun * kLanes, n - begin), whole = count / kLanes * kLanes;
    const T* block = x + begin;
    A lanes[kLanes] = {};
    for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<A>(block[i + lane]);
    }
    for (int64_t i = whole; i < count; ++i) lanes[i - whole] += static_cast<A>(block[i]);
    for (A lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

constexpr int64_t kColumns = 128;

// totals[i] = the sum over `rows` rows, `stride` apart, of their element i, for i < columns.
template <class T>
void sum_of_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, double* totals) {
  using A = Accumulator<T>;
  std::fill(totals, totals + columns, 0.0);
  for (int64_t begin = 0; begin < rows; begin += kRun) {
    A sums[kColumns] = {};
    for (int64_t row = begin; row < std::min(rows, begin + kRun); ++row) {
      const T* line = x + row * stride;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<A>(line[i]);
    }
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) totals[i] += static_cast<double>(sums[i]);
  }
}

}  // namespace

// Long sums are cut into pieces, so that a single one feeds many threads. Where the cuts lie
// depends on the sizes alone.
template <class T, class Out>
void sum_middle(const Cpu& cpu, int64_t outer, int64_t length, int64_t inner, const T* x,
                double factor, Out* y) {
  constexpr int64_t kPieceElements = 65536;
  if (outer * inner == 0) return;
  const int64_t rows = std::max(kRun, kPieceElements / inner);
  const int64_t pieces = std::max<int64_t>(1, (length + rows - 1) / rows);
  const int64_t blocks = (inner + kColumns - 1) / kColumns;
  std::vector<double> sums(outer * pieces * inner);
  parallel_for(cpu, outer * pieces * blocks, [&](int64_t task) {
    const int64_t column = task % blocks * kColumns, piece = task / blocks % pieces;
    const int64_t o = task / blocks / pieces, first = piece * rows;
    const int64_t count = std::min(rows, length - first);
    const T* source = x + (o * length + first) * inner + column;
    double* target = sums.data() + (o * pieces + piece) * inner + column;
    if (inner == 1) {
      *target = sum_of_row(source, count);
    } else {
      sum_of_columns(source, count, inner, std::min(kColumns, inner - column), target);
    }
  });
  parallel_blocks(cpu, outer * inner, kElementBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double* piece = sums.data() + i / inner * pieces * inner + i % inner;
      double total = 0.0;
      for (int64_t p = 0; p < pieces; ++p) total += piece[p * inner];
      y[i] = static_cast<Out>(static_cast<Accumulator<Out>>(factor * total));
    }
  });
}

#define XT_SUM(T, Out) \
  template void sum_middle(const Cpu&, int64_t, int64_t, int64_t, const T*, double, Out*);
XT_SUM(double, double)
XT_SUM(float, float)
XT_SUM(float, BFloat16)
XT_SUM(BFloat16, BFloat16)
XT_SUM(BFloat16, float)
#undef XT_SUM

}  // namespace xtrain
