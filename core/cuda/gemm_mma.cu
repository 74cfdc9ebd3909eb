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
#include "core/error.h"

namespace xtrain {
namespace {

constexpr int kDepth = 64;                // k of a slice
constexpr int kStep = 16;                 // k of one mma instruction
constexpr int kSteps = kDepth / kStep;    // instructions of a sum in a slice
constexpr int kWarpTile = 64;             // rows and columns of c that a warp computes
constexpr int kSquares = kWarpTile / 16;  // 16 x 16 squares of an operand in a step of a warp
constexpr int kChunk = 8;                 // elements of 16 bytes, the unit of copies
constexpr int kChunkBytes = 16;

template <int kRows_, int kColumns_, int kStages_>
struct BlockShape {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kStages = kStages_;
  static constexpr int kWarpsOver = kColumns / kWarpTile;
  static constexpr int kThreads = kRows / kWarpTile * kWarpsOver * kWarp;
  static constexpr int kStageBytes = (kRows + kColumns) * kDepth * 2;
  static constexpr int64_t kSharedBytes = int64_t{kStages} * kStageBytes;
};

__device__ void copy_chunk_async(uint32_t shared, const BFloat16* global, int bytes) {
  // What lies beyond `bytes` is filled with zeros.
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending of the thread's committed groups are under way.
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8 x 8 matrices; `row` is the address of one row of one of them: lane l gives row l % 8 of
// matrix l / 8. Each lane receives elements 2 (l % 4) and the next of row l / 4 of every matrix, or
// with kTurned of column l / 4.
template <bool kTurned>
__device__ void load_matrices(uint32_t row, uint32_t (&x)[4]) {
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row));
  }
}

// sums (16 x 8) += a (16 x 16) b (16 x 8).
__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

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

// One thread's part of the copies of an operand's slices: a column of chunks.
template <int kAcross, bool kByK, bool kAligned, int kThreads>
class SliceCopy {
  using Layout = Slice<kAcross, kByK>;
  static constexpr int kShare = Layout::kChunks / kThreads;
  static constexpr int kLineStep = kThreads / Layout::kLineChunks;
  static_assert(kLineStep % 8 == 0, "the swizzle must be the same for all chunks of a thread");

 public:
  __device__ SliceCopy(const BFloat16* matrix, int64_t ld, int64_t first, int64_t across,
                       int64_t k_count) {
    const int line = threadIdx.x / Layout::kLineChunks, chunk = threadIdx.x % Layout::kLineChunks;
    place_ = Layout::place(line, chunk);
    source_ = matrix + (kByK ? (first + line) * ld : first + line * ld) + chunk * kChunk;
    line_step_ = kLineStep * ld;
    slice_step_ = kByK ? kDepth : kDepth * ld;
    lines_left_ = (kByK ? across - first : k_count) - line;
    elements_left_ = (kByK ? k_count : across - first) - chunk * kChunk;
  }

  // Chunks [kBegin, kEnd) / kSteps of the thread's share, to the slice at `shared`.
  template <int kPart>
  __device__ void copy_part(uint32_t shared) const {
#pragma unroll
    for (int i = kShare * kPart / kSteps; i < kShare * (kPart + 1) / kSteps; ++i) {
      const int64_t elements = i * kLineStep < lines_left_ ? elements_left_ : 0;
      const int count = static_cast<int>(min(max(elements, int64_t{0}), int64_t{kChunk}));
      copy_chunk(shared + place_ + i * kLineStep * Layout::kLineBytes, source_ + i * line_step_,
                 count);
    }
  }

  __device__ void next_slice() {
    source_ += slice_step_;
    (kByK ? elements_left_ : lines_left_) -= kDepth;
  }

 private:
  __device__ static void copy_chunk(uint32_t shared, const BFloat16* source, int count) {
    if constexpr (kAligned) {
      copy_chunk_async(shared, source, count * 2);
    } else {
      uint32_t pair[kChunk / 2] = {};
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (i < count) pair[i / 2] |= uint32_t{source[i].bits} << (i % 2 * 16);
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(pair[0]),
                   "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                   : "memory");
    }
  }

  const BFloat16* source_;  // the thread's first chunk of the next slice
  int64_t line_step_, slice_step_;
  int64_t lines_left_, elements_left_;  // from the first chunk to the operand's edges
  uint32_t place_;
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
      load_matrices<!kByK>(shared + (place_ ^ along) + lines, x[i]);
    }
  }

 private:
  uint32_t place_;
};

// Operands of one step of a warp.
struct Squares {
  uint32_t a[kSquares][4];
  uint32_t b[kSquares][4];
};
using WarpSums = float[kSquares][2 * kSquares][4];

__device__ void multiply_squares(const Squares& x, WarpSums& sums) {
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kSquares; ++j) {
      // Back and forth, so that successive instructions share an operand.
      const int jj = i % 2 == 0 ? j : 2 * kSquares - 1 - j;
      multiply_add(sums[i][jj], x.a[i], x.b[jj / 2][jj % 2 * 2], x.b[jj / 2][jj % 2 * 2 + 1]);
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

template <class Block, bool kAByK, bool kBByK, bool kAligned>
struct Pipeline {
  using ACopy = SliceCopy<Block::kRows, kAByK, kAligned, Block::kThreads>;
  using BCopy = SliceCopy<Block::kColumns, kBByK, kAligned, Block::kThreads>;
  using AReader = SquareReader<Block::kRows, kAByK, true>;
  using BReader = SquareReader<Block::kColumns, kBByK, false>;
  static constexpr int kABytes = Slice<Block::kRows, kAByK>::kBytes;

  ACopy a_copy;
  BCopy b_copy;
  AReader a_reader;
  BReader b_reader;
  uint32_t shared;

  __device__ uint32_t stage(int64_t slice) const {
    return shared + static_cast<int>(slice % Block::kStages) * Block::kStageBytes;
  }
  template <int kPart>
  __device__ void copy_part(uint32_t to) {
    a_copy.template copy_part<kPart>(to);
    b_copy.template copy_part<kPart>(to + kABytes);
  }
  __device__ void next_slice() {
    a_copy.next_slice();
    b_copy.next_slice();
  }
  __device__ void read(uint32_t from, int step, Squares& x) const {
    a_reader.read(from, step, x.a);
    b_reader.read(from + kABytes, step, x.b);
  }

  __device__ void multiply(int64_t slices, WarpSums& sums);
};

template <class Block, bool kAByK, bool kBByK, bool kAligned>
__device__ void Pipeline<Block, kAByK, kBByK, kAligned>::multiply(int64_t slices, WarpSums& sums) {
  constexpr int kStages = Block::kStages;
  static_assert(kSteps == 4, "the parts of a copy are spelled out");
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < slices) {
      copy_part<0>(stage(s));
      copy_part<1>(stage(s));
      copy_part<2>(stage(s));
      copy_part<3>(stage(s));
      next_slice();
    }
    commit_copies();
  }
  wait_for_copies<kStages - 2>();
  __syncthreads();
  Squares x[2];
  int read_stage = 0, write_stage = kStages - 1;
  uint32_t from = shared;
  read(from, 0, x[0]);
  for (int64_t s = 0; s < slices; ++s) {
    const bool more = s + kStages - 1 < slices;
    const uint32_t to = shared + write_stage * Block::kStageBytes;
    read(from, 1, x[1]);
    if (more) copy_part<0>(to);
    multiply_squares(x[0], sums);
    read(from, 2, x[0]);
    if (more) copy_part<1>(to);
    multiply_squares(x[1], sums);
    read(from, 3, x[1]);
    if (more) copy_part<2>(to);
    multiply_squares(x[0], sums);
    if (more) {
      copy_part<3>(to);
      next_slice();
    }
    commit_copies();
    // The next slice is complete, and nobody reads this one any more.
    wait_for_copies<kStages - 2>();
    __syncthreads();
    write_stage = read_stage;
    read_stage = read_stage + 1 == kStages ? 0 : read_stage + 1;
    from = shared + read_stage * Block::kStageBytes;
    read(from, 0, x[0]);
    multiply_squares(x[1], sums);
  }
}

template <class Block, bool kAByK, bool kBByK, bool kAligned, class Out>
__global__ void __launch_bounds__(Block::kThreads)
    multiply_tiles(const __grid_constant__ KernelProblem<BFloat16, Out> p, int64_t tiles,
                   bool pairs) {
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const int64_t down = ceil_div(p.m, Block::kRows), over = ceil_div(p.n, Block::kColumns);
  const int warp = threadIdx.x / kWarp;
  const int warp_row = warp / Block::kWarpsOver * kWarpTile;
  const int warp_column = warp % Block::kWarpsOver * kWarpTile;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const auto at = p.matrices(tile / (down * over));
    const TilePlace place = place_of_tile(tile % (down * over), down, over);
    const int64_t row = place.row * Block::kRows, column = place.column * Block::kColumns;
    using Work = Pipeline<Block, kAByK, kBByK, kAligned>;
    Work work{typename Work::ACopy(at.a, p.a_layout.ld, row, p.m, p.k),
              typename Work::BCopy(at.b, p.b_layout.ld, column, p.n, p.k),
              typename Work::AReader(warp_row), typename Work::BReader(warp_column), shared};
    WarpSums sums = {};
    work.multiply(ceil_div(p.k, kDepth), sums);
    store_sums(p, at.c, row + warp_row, column + warp_column, pairs, sums);
    __syncthreads();  // the next tile writes shared memory
  }
}

template <class Block, bool kAByK, bool kBByK, bool kAligned, class Out>
void run(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c) {
  const int64_t tiles = p.batches() * ceil_div(p.m, Block::kRows) * ceil_div(p.n, Block::kColumns);
  bool pairs = p.ldc % 2 == 0 && reinterpret_cast<uintptr_t>(c) % sizeof(Pair<Out>) == 0;
  for (int64_t stride : p.batch_stride_c) pairs = pairs && stride % 2 == 0;
  XT_LAUNCH(cuda, (LaunchShape{grid_for(tiles, 1), Block::kThreads, Block::kSharedBytes}),
            (multiply_tiles<Block, kAByK, kBByK, kAligned, Out>),
            KernelProblem<BFloat16, Out>(p, a, b, c), tiles, pairs);
}

template <class Block, bool kAligned, class Out>
void run(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b, Out* c) {
  if (p.a.transposed) {
    return p.b.transposed ? run<Block, false, true, kAligned>(cuda, p, a, b, c)
                          : run<Block, false, false, kAligned>(cuda, p, a, b, c);
  }
  return p.b.transposed ? run<Block, true, true, kAligned>(cuda, p, a, b, c)
                        : run<Block, true, false, kAligned>(cuda, p, a, b, c);
}

// Whether the lines of every matrix begin at multiples of 16 bytes.
bool lies_by_chunks(const BFloat16* x, const GemmOperand& op, const Strides& batch_strides) {
  bool aligned = reinterpret_cast<uintptr_t>(x) % kChunkBytes == 0 && op.ld % kChunk == 0;
  for (int64_t stride : batch_strides) aligned = aligned && stride % kChunk == 0;
  return aligned;
}

using LargeBlock = BlockShape<128, 256, 4>;  // the least traffic an operation
using SmallBlock = BlockShape<128, 128, 3>;  // two share a multiprocessor

}  // namespace

template <class Out>
void mma_gemm(const Cuda& cuda, const GemmProblem& p, const BFloat16* a, const BFloat16* b,
              Out* c) {
  const GpuProperties& gpu = gpu_of(cuda);
  check(gpu.compute_capability >= 80,
        "matmul: backend mma needs a GPU of compute capability 8.0 or newer; got ",
        gpu.compute_capability / 10, ".", gpu.compute_capability % 10, ": use tiled or library");
  if (!lies_by_chunks(a, p.a, p.batch_stride_a) || !lies_by_chunks(b, p.b, p.batch_stride_b)) {
    return run<SmallBlock, false>(cuda, p, a, b, c);
  }
  const int64_t large_tiles =
      p.batches() * ceil_div(p.m, LargeBlock::kRows) * ceil_div(p.n, LargeBlock::kColumns);
  if (large_tiles >= gpu.multiprocessors &&
      LargeBlock::kSharedBytes <= gpu.shared_bytes_per_block) {
    return run<LargeBlock, true>(cuda, p, a, b, c);
  }
  run<SmallBlock, true>(cuda, p, a, b, c);
}

template void mma_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                       BFloat16*);
template void mma_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
