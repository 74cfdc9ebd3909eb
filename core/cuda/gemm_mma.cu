// Matrix products of bf16 by tensor cores (mma.sync, compute capability 8.0 and newer), summed in
// f32.
//
// A block computes a tile of c; each of its warps a 64 x 64 part, whose sums fill half of the
// warp's registers. It walks over k in steps of kDepth. Slices of a and b arrive in shared memory
// by asynchronous copies, kStages - 1 steps ahead of the arithmetic, so that memory and tensor
// cores work at once; inside a step the operands of the next instructions are read into registers
// while the current ones run. Either operand may lie by rows or by columns: slices keep the order
// that memory has, and ldmatrix turns 8 x 8 squares on their way into registers where needed.

#include <cuda_runtime.h>

#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "core/error.h"

namespace xtrain {
namespace {

constexpr int kDepth = 64;              // k of a slice
constexpr int kStep = 16;               // k of one mma instruction
constexpr int kSteps = kDepth / kStep;  // instructions of a sum in a slice
constexpr int kCopyParts = kSteps - 1;  // in which a slice is copied, between the steps of another
constexpr int kWarpTile = 64;           // rows and columns of c that a warp computes
constexpr int kSquares = kWarpTile / 16;  // 16 x 16 squares of an operand in a step of a warp
constexpr int kChunk = 8;                 // elements of 16 bytes, the unit of copies
constexpr int kChunkBytes = 16;

// One tile shape: with 96 KiB of slices and four warps two blocks share a multiprocessor and fill
// each other's pauses.
constexpr int kRows = 128, kColumns = 128;  // of a tile
constexpr int kStages = 3;                  // slices in shared memory
constexpr int kWarpsOver = kColumns / kWarpTile;
constexpr int kThreads = kRows / kWarpTile * kWarpsOver * kWarp;
constexpr int kStageBytes = (kRows + kColumns) * kDepth * 2;
constexpr int64_t kSharedBytes = int64_t{kStages} * kStageBytes;

// A slice of an operand in shared memory: kAcross rows of a (columns of b) by kDepth of k, in lines
// of what is contiguous in memory. Chunk c of line l lies at chunk c ^ (l % 8) of its line: the
// eight rows of a matrix that ldmatrix reads at once, one chunk of eight neighbouring lines, then
// touch all banks.
template <int kAcross, bool kByK>
struct Slice {
  static constexpr int kLineChunks = (kByK ? kDepth : kAcross) / kChunk;
  static constexpr int kLineBytes = kLineChunks * kChunkBytes;
  static constexpr int kChunks = kAcross * kDepth / kChunk;
  static constexpr int kBytes = kChunks * kChunkBytes;
  __device__ static uint32_t place(int line, int chunk) {
    return line * kLineBytes + ((chunk ^ (line % 8)) * kChunkBytes);
  }
};

// One thread's part of the copies of an operand's slices: a column of chunks. kByChunks says that
// lines begin at multiples of 16 bytes in memory and are whole chunks, so that copies can be
// asynchronous.
template <int kAcross, bool kByK, bool kByChunks>
class SliceCopy {
  using Layout = Slice<kAcross, kByK>;
  static constexpr int kShare = Layout::kChunks / kThreads;
  static constexpr int kLineStep = kThreads / Layout::kLineChunks;
  static_assert(kLineStep % 8 == 0, "the swizzle must be the same for all chunks of a thread");

 public:
  __device__ SliceCopy(const BFloat16* matrix, int64_t ld, int64_t first, int64_t across) {
    const int line = threadIdx.x / Layout::kLineChunks, chunk = threadIdx.x % Layout::kLineChunks;
    place_ = Layout::place(line, chunk);
    source_ = matrix + (kByK ? (first + line) * ld : first + line * ld) + chunk * kChunk;
    line_step_ = kLineStep * ld;
    slice_step_ = kByK ? kDepth : kDepth * ld;
    k_ = kByK ? chunk * kChunk : line;
    const int64_t left = across - first - (kByK ? line : chunk * kChunk);
    across_left_ = static_cast<int>(min(left, int64_t{kAcross}));
    // Keeps them in registers: the compiler would work them out again for every slice, in time that
    // the tensor cores need.
    asm volatile(""
                 : "+r"(place_), "+r"(k_), "+r"(across_left_), "+l"(line_step_), "+l"(slice_step_));
  }

  // Part `part` of kCopyParts of the thread's chunks, to the slice at `shared`. `k_left` is what is
  // left of k from the slice on.
  __device__ void copy_part(int part, uint32_t shared, int k_left) const {
    // From the thread's first chunk to the edge of the operand.
    int lines = kByK ? across_left_ : k_left - k_;
    const int elements = kByK ? k_left - k_ : across_left_;
    if (kByChunks && elements <= 0) lines = 0;
#pragma unroll
    for (int i = kShare * part / kCopyParts; i < kShare * (part + 1) / kCopyParts; ++i) {
      const uint32_t to = shared + place_ + i * kLineStep * Layout::kLineBytes;
      const BFloat16* from = source_ + i * line_step_;
      const bool inside = i * kLineStep < lines;
      if constexpr (kByChunks) {
        copy_async_predicated(to, from, inside);
      } else {
        copy_elements(to, from, inside ? elements : 0);
      }
    }
  }

  __device__ void next_slice() {
    source_ += slice_step_;
  }

 private:
  __device__ static void copy_elements(uint32_t shared, const BFloat16* source, int count) {
    uint32_t pair[kChunk / 2] = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) pair[i / 2] |= uint32_t{source[i].bits} << (i % 2 * 16);
    }
    store_shared(shared, make_uint4(pair[0], pair[1], pair[2], pair[3]));
  }

  const BFloat16* source_;  // the thread's first chunk of the next slice
  int64_t line_step_, slice_step_;
  uint32_t place_;
  int k_, across_left_;  // of the first chunk: k in the slice, elements to the other edge
};

// Reads a warp's part of slices into registers, 16 x 16 squares as mma takes them. In a's square
// the four 8 x 8 matrices follow each other down the rows first, in b's along k first.
template <int kAcross, bool kByK, bool kDownFirst>
class SquareReader {
  using Layout = Slice<kAcross, kByK>;

 public:
  // `first`: of the warp's rows (columns) in the slice.
  __device__ explicit SquareReader(int first) {
    const int lane = threadIdx.x % kWarp;
    const int low = lane / 8 % 2, high = lane / 16;  // bits of the matrix whose row the lane names
    const int across = kDownFirst ? low : high, k = kDownFirst ? high : low;
    place_ = kByK ? Layout::place(first + across * 8 + lane % 8, k)
                  : Layout::place(k * 8 + lane % 8, first / kChunk + across);
  }

  __device__ void read(uint32_t shared, int step, uint32_t (&x)[kSquares][4]) const {
#pragma unroll
    for (int i = 0; i < kSquares; ++i) {
      // Two chunks further in the swizzled line is an exclusive or: lines begin at multiples of 8
      // chunks, of which the warp's part starts at one.
      const int along = (kByK ? step : i) * 2 * kChunkBytes;
      const int lines = (kByK ? i : step) * 16 * Layout::kLineBytes;
      const uint32_t at = shared + (place_ ^ along) + lines;
      kByK ? load_matrices(x[i], at) : load_matrices_transposed(x[i], at);
    }
  }

 private:
  uint32_t place_;
};

// Operands of one step of a warp.
struct Squares {
  uint32_t a[kSquares][4], b[kSquares][4];
};
using WarpSums = MmaSums<kSquares, 2 * kSquares>;

__device__ void multiply_squares(const Squares& x, WarpSums& sums) {
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kSquares; ++j) {
      // Back and forth, so that successive instructions share an operand.
      const int jj = i % 2 == 0 ? j : 2 * kSquares - 1 - j;
      mma(sums[i][jj], x.a[i], x.b[jj / 2][jj % 2 * 2], x.b[jj / 2][jj % 2 * 2 + 1]);
    }
  }
}

template <class Out>
struct alignas(2 * sizeof(Out)) Pair {
  Out value[2];
};

// `row` and `column` are those of the warp's tile. A lane has two neighbouring elements of rows
// l / 4 and 8 further in each 16 x 8 piece.
template <class Out>
__device__ void store_sums(const KernelProblem<BFloat16, Out>& p, Out* c, int64_t row,
                           int64_t column, bool pairs, const WarpSums& sums) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < 2 * kSquares; ++i) {
    const int64_t r = row + i * 8 + lane / 4;
    if (r >= p.m) return;
    Out* line = c + r * p.ldc;
#pragma unroll
    for (int j = 0; j < 2 * kSquares; ++j) {
      const int64_t s = column + j * 8 + lane % 4 * 2;
      const float* sum = sums[i / 2][j] + i % 2 * 2;
      if (pairs && s + 1 < p.n) {
        auto* place = reinterpret_cast<Pair<Out>*>(line + s);
        const Pair<Out> old = p.beta == 0 ? Pair<Out>{} : *place;
        *place = {p.scaled(sum[0], old.value), p.scaled(sum[1], old.value + 1)};
      } else {
        if (s < p.n) line[s] = p.scaled(sum[0], line + s);
        if (s + 1 < p.n) line[s + 1] = p.scaled(sum[1], line + s + 1);
      }
    }
  }
}

// The row and column in tiles of the tile with this number. Blocks run about in the order of their
// numbers: narrow groups of rows of tiles let those that run together share slices in the cache.
struct TilePlace {
  int64_t row, column;
};
__device__ TilePlace place_of_tile(int64_t tile, int64_t down, int64_t over) {
  constexpr int64_t kGroup = 8;
  const int64_t group = tile / (kGroup * over), first = group * kGroup;
  const int64_t height = min(down - first, kGroup), inside = tile - group * kGroup * over;
  return {first + inside % height, inside / height};
}

template <bool kAByK, bool kBByK, bool kByChunks>
struct Pipeline {
  using ACopy = SliceCopy<kRows, kAByK, kByChunks>;
  using BCopy = SliceCopy<kColumns, kBByK, kByChunks>;
  using AReader = SquareReader<kRows, kAByK, true>;
  using BReader = SquareReader<kColumns, kBByK, false>;
  static constexpr int kABytes = Slice<kRows, kAByK>::kBytes;

  ACopy a_copy;
  BCopy b_copy;
  AReader a_reader;
  BReader b_reader;
  uint32_t shared;

  __device__ void copy_part(int part, uint32_t to, int k_left) const {
    a_copy.copy_part(part, to, k_left);
    b_copy.copy_part(part, to + kABytes, k_left);
  }
  __device__ void next_slice() {
    a_copy.next_slice();
    b_copy.next_slice();
  }
  __device__ void read(uint32_t from, int step, Squares& x) const {
    a_reader.read(from, step, x.a);
    b_reader.read(from + kABytes, step, x.b);
  }

  __device__ void multiply(int64_t k, WarpSums& sums);
};

template <bool kAByK, bool kBByK, bool kByChunks>
__device__ void Pipeline<kAByK, kBByK, kByChunks>::multiply(int64_t k, WarpSums& sums) {
  int64_t to_copy = k;  // what is left of k from the next slice to copy on
  const auto copy = [&](int part, uint32_t to) {
    if (to_copy > 0) copy_part(part, to, static_cast<int>(min(to_copy, int64_t{kDepth})));
  };
  const auto end_copy = [&] {
    next_slice();
    to_copy -= kDepth;
    copy_async_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) {
#pragma unroll
    for (int part = 0; part < kCopyParts; ++part) copy(part, shared + s * kStageBytes);
    end_copy();
  }
  copy_async_wait<kStages - 2>();
  __syncthreads();
  Squares x[2];
  uint32_t from = shared, to = shared + (kStages - 1) * kStageBytes;
  read(from, 0, x[0]);
  for (int64_t left = k; left > 0; left -= kDepth) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        to = from;
        from += kStageBytes;
        if (from == shared + kSharedBytes) from = shared;
      }
      read(from, (step + 1) % kSteps, x[(step + 1) % 2]);
      if (step < kCopyParts) copy(step, to);
      if (step == kCopyParts - 1) {
        end_copy();
        // The next slice is complete, and nobody reads this one any more.
        copy_async_wait<kStages - 2>();
        __syncthreads();
      }
      multiply_squares(x[step % 2], sums);
    }
  }
}

template <bool kAByK, bool kBByK, bool kByChunks, class Out>
__global__ void __launch_bounds__(kThreads)
    multiply_tiles(const __grid_constant__ KernelProblem<BFloat16, Out> p, int64_t tiles,
                   bool pairs) {
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t shared = shared_address(memory);
  const int64_t down = ceil_div(p.m, kRows), over = ceil_div(p.n, kColumns);
  const int warp = threadIdx.x / kWarp;
  const int warp_row = warp / kWarpsOver * kWarpTile;
  const int warp_column = warp % kWarpsOver * kWarpTile;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const auto at = p.matrices(tile / (down * over));
    const TilePlace place = place_of_tile(tile % (down * over), down, over);
    const int64_t row = place.row * kRows, column = place.column * kColumns;
    using Work = Pipeline<kAByK, kBByK, kByChunks>;
    Work work{typename Work::ACopy(at.a, p.a_layout.ld, row, p.m),
              typename Work::BCopy(at.b, p.b_layout.ld, column, p.n),
              typename Work::AReader(warp_row), typename Work::BReader(warp_column), shared};
    WarpSums sums = {};
    work.multiply(p.k, sums);
    store_sums(p, at.c, row + warp_row, column + warp_column, pairs, sums);
    __syncthreads();  // the next tile writes shared memory
  }
}

template <bool kAByK, bool kBByK, bool kByChunks, class Out>
void run(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c) {
  const int64_t tiles = p.batches() * ceil_div(p.m, kRows) * ceil_div(p.n, kColumns);
  bool pairs = p.ldc % 2 == 0 && reinterpret_cast<uintptr_t>(c) % sizeof(Pair<Out>) == 0;
  for (int64_t stride : p.batch_stride_c) pairs = pairs && stride % 2 == 0;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(tiles, 1), kThreads, kSharedBytes}),
            (multiply_tiles<kAByK, kBByK, kByChunks, Out>),
            KernelProblem<BFloat16, Out>(p, a, b, c), tiles, pairs);
}

template <bool kByChunks, class Out>
void run(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c) {
  if (p.a.transposed) {
    return p.b.transposed ? run<false, true, kByChunks>(cuda, p, a, b, c)
                          : run<false, false, kByChunks>(cuda, p, a, b, c);
  }
  return p.b.transposed ? run<true, true, kByChunks>(cuda, p, a, b, c)
                        : run<true, false, kByChunks>(cuda, p, a, b, c);
}

// Whether the lines of every matrix, `length` elements each, are whole chunks at multiples of 16
// bytes.
bool lies_by_chunks(const BFloat16* x, const GemmOperand& op, int64_t length,
                    const Strides& batch_strides) {
  bool fits = reinterpret_cast<uintptr_t>(x) % kChunkBytes == 0 && op.ld % kChunk == 0 &&
              length % kChunk == 0;
  for (int64_t stride : batch_strides) fits = fits && stride % kChunk == 0;
  return fits;
}

}  // namespace

template <class Out>
void mma_gemm(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b,
              Out* c) {
  const GpuProperties& gpu = gpu_of(cuda);
  check(gpu.compute_capability >= 80,
        "matmul: backend mma needs a GPU of compute capability 8.0 or newer; got ",
        gpu.compute_capability / 10, ".", gpu.compute_capability % 10, ": use tiled or library");
  const bool by_chunks = lies_by_chunks(a, p.a, p.a.transposed ? p.m : p.k, p.batch_stride_a) &&
                         lies_by_chunks(b, p.b, p.b.transposed ? p.k : p.n, p.batch_stride_b);
  return by_chunks ? run<true>(cuda, p, a, b, c) : run<false>(cuda, p, a, b, c);
}

template void mma_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                       BFloat16*);
template void mma_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
