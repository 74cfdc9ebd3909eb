#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"
#include "core/cuda/row.h"
#include "core/cuda/sum.h"
#include "core/tensor.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kRun = 64;  // additions in the accumulator type before the result moves on to f64

// A stage cuts `length` into pieces and writes the sum of each, [outer, pieces, inner]; the next
// stage sums those, until there is one piece, which goes to the target.
struct Stage {
  MiddleSizes sizes;
  int64_t piece, pieces;  // elements of a piece along length, and how many there are
  bool whole;             // accesses of 16 bytes fit
};

template <class Out>
__device__ void write_sum(const SumTarget<Out>& target, int64_t index, double sum) {
  Out& y = target.y[index * target.stride];
  sum *= target.factor;
  y = static_cast<Out>(
      static_cast<Accumulator<Out>>(target.accumulate ? static_cast<double>(y) + sum : sum));
}

// The elements of a pack that lie before `end`, the others 0; a thread's additions then have one
// order, whether the address allows 16 bytes at a time or not.
template <class T>
__device__ Values<T> values_before(const T* x, int64_t at, int64_t end, bool whole) {
  if (whole) return values_of(load_pack(x + at));
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) pack.value[i] = at + i < end ? x[at + i] : T(0);
  return values_of(pack);
}

// inner == 1. threadIdx.y tells the rows of a block apart, each one piece. No thread has more than
// kRun elements.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads) sum_rows_of_pieces(Stage s, SumPair<T, Out> pair) {
  begin_behind_others();
  const T* const x = pair.x[blockIdx.y];
  const SumTarget<Out>& target = pair.target[blockIdx.y];
  __shared__ double scratch[kWarp];
  const int64_t rows = s.sizes.outer * s.pieces, stride = int64_t{gridDim.x} * blockDim.y;
  for (int64_t first = int64_t{blockIdx.x} * blockDim.y; first < rows; first += stride) {
    const int64_t row = first + threadIdx.y, begin = row % s.pieces * s.piece;
    const int64_t end = row < rows ? min(s.sizes.length, begin + s.piece) : 0;
    const T* source = x + row / s.pieces * s.sizes.length;
    Accumulator<T> sum = 0;
    const int step = blockDim.x * kPackSize<T>;
#pragma unroll 8
    for (int64_t at = begin + threadIdx.x * kPackSize<T>; at < end; at += step) {
      const Values<T> values = values_before(source, at, end, s.whole);
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) sum += values.at[j];
    }
    const double total = block_reduce(static_cast<double>(sum), Add(), 0.0, scratch);
    if (threadIdx.x == 0 && row < rows) write_sum(target, row, total);
  }
}

// inner > 1. The threads of a block are threadIdx.x packs of columns, counted over outer and inner,
// by threadIdx.y rows, which walk down a piece and are then added pairwise.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads) sum_columns_of_pieces(Stage s, SumPair<T, Out> pair) {
  begin_behind_others();
  const T* const x = pair.x[blockIdx.y];
  const SumTarget<Out>& target = pair.target[blockIdx.y];
  constexpr int kColumns = kPackSize<T>;
  __shared__ double sums[kColumns][kThreads];
  const int64_t packs = ceil_div(s.sizes.inner, kColumns);
  const int64_t tiles = ceil_div(s.sizes.outer * packs, blockDim.x);
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int64_t task = blockIdx.x; task < tiles * s.pieces; task += gridDim.x) {
    const int64_t pack = task % tiles * blockDim.x + threadIdx.x, piece = task / tiles;
    const int64_t outer = pack / packs, column = pack % packs * kColumns;
    const bool inside = outer < s.sizes.outer;
    const int64_t end = inside ? min(s.sizes.length, (piece + 1) * s.piece) : 0;
    const T* source = x + outer * s.sizes.length * s.sizes.inner;
    Values<T> sum = {};
#pragma unroll 8
    for (int64_t row = piece * s.piece + threadIdx.y; row < end; row += blockDim.y) {
      const Values<T> values =
          values_before(source + row * s.sizes.inner, column, s.sizes.inner, s.whole);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum.at[i] += values.at[i];
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sums[i][thread] = sum.at[i];
    __syncthreads();
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) sums[i][thread] += sums[i][thread + half * blockDim.x];
      }
      __syncthreads();
    }
    if (threadIdx.y == 0 && inside) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (column + i >= s.sizes.inner) break;
        write_sum(target, (outer * s.pieces + piece) * s.sizes.inner + column + i, sums[i][thread]);
      }
    }
    __syncthreads();  // the next task writes sums
  }
}

// The shape of a block of a stage: `along` threads side by side (elements of a row, or packs of
// columns) by `across` of them, of which each takes `run` packs or rows at most.
struct StageBlock {
  int along, across;
  int64_t piece;
};

StageBlock rows_block(int64_t length) {
  if (length <= kWarp * kRun) return {kWarp, kThreads / kWarp, kWarp * kRun};
  return {kThreads, 1, kThreads * kRun};
}

// Many threads side by side read long stretches of a row; fewer of them make more blocks, which
// short or narrow sums need to fill the GPU.
StageBlock columns_block(const MiddleSizes& sizes, int64_t column_packs) {
  constexpr int64_t kEnoughBlocks = 256;
  constexpr int kShort = 16;
  const int64_t packs = sizes.outer * column_packs;
  if (sizes.length <= kShort) return {kThreads, 1, kShort};
  const StageBlock wide{kWarp, 8, 4 * kRun};
  const int64_t blocks = ceil_div(packs, wide.along) * ceil_div(sizes.length, wide.piece);
  if (blocks >= kEnoughBlocks) return wide;
  if (packs >= 8) return {8, kWarp, kWarp * kShort};
  return {1, kThreads, kThreads * kRun};
}

// blockIdx.y tells the two of a pair apart.
template <class T, class Out>
dim3 grid_of_pair(int64_t blocks, int64_t per_block, const SumPair<T, Out>& pair) {
  dim3 grid = grid_for(blocks, per_block);
  grid.y = pair.target[1].y ? 2 : 1;
  return grid;
}

template <class T, class Out>
void launch_stage(const Cuda& cuda, const MiddleSizes& sizes, const StageBlock& block,
                  const SumPair<T, Out>& pair) {
  const int64_t pieces = std::max<int64_t>(1, ceil_div(sizes.length, block.piece));
  const dim3 threads(block.along, block.across);
  if (sizes.inner == 1) {
    const Stage stage{sizes, block.piece, pieces, fits_packs(sizes.length, pair.x[0], pair.x[1])};
    const dim3 grid = grid_of_pair(sizes.outer * pieces, block.across, pair);
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid, threads}), (sum_rows_of_pieces<T, Out>), stage, pair);
  } else {
    const Stage stage{sizes, block.piece, pieces, fits_packs(sizes.inner, pair.x[0], pair.x[1])};
    const int64_t packs = sizes.outer * ceil_div(sizes.inner, kPackSize<T>);
    const dim3 grid = grid_of_pair(ceil_div(packs, block.along) * pieces, 1, pair);
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid, threads}), (sum_columns_of_pieces<T, Out>), stage,
                    pair);
  }
}

}  // namespace

template <class T, class Out>
void sum_over_middle(const Cuda& cuda, const MiddleSizes& sizes, const SumPair<T, Out>& pair) {
  if (sizes.outer * sizes.inner == 0) return;
  const StageBlock block = sizes.inner == 1
                               ? rows_block(sizes.length)
                               : columns_block(sizes, ceil_div(sizes.inner, kPackSize<T>));
  const int64_t pieces = ceil_div(sizes.length, block.piece);
  if (pieces <= 1) return launch_stage(cuda, sizes, block, pair);
  const MiddleSizes rest{sizes.outer, pieces, sizes.inner};
  const int64_t size = rest.outer * rest.length * rest.inner, sums = pair.target[1].y ? 2 : 1;
  Tensor partial = empty(cuda.ctx, {sums, size}, Dtype::f64);
  double* const first = partial.mutable_data<double>();
  double* const second = sums > 1 ? first + size : nullptr;
  launch_stage(cuda, sizes, block, SumPair<T, double>{{pair.x[0], pair.x[1]}, {{first}, {second}}});
  sum_over_middle(cuda, rest,
                  SumPair<double, Out>{{first, second}, {pair.target[0], pair.target[1]}});
}

template <class T, class Out>
void sum_over_middle(const Cuda& cuda, const MiddleSizes& sizes, const T* x,
                     const SumTarget<Out>& target) {
  sum_over_middle(cuda, sizes, SumPair<T, Out>{{x, nullptr}, {target, {nullptr}}});
}

#define XT_SUM(T, Out)                                                                             \
  template void sum_over_middle(const Cuda&, const MiddleSizes&, const T*, const SumTarget<Out>&); \
  template void sum_over_middle(const Cuda&, const MiddleSizes&, const SumPair<T, Out>&);
XT_SUM(double, double)
XT_SUM(double, float)
XT_SUM(double, BFloat16)
XT_SUM(float, float)
XT_SUM(float, BFloat16)
XT_SUM(BFloat16, BFloat16)
XT_SUM(BFloat16, float)
#undef XT_SUM

}  // namespace xtrain
