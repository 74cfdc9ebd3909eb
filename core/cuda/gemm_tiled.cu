// Matrix products by tiles, on the ordinary arithmetic units, for every dtype and layout.
//
// A block computes a square tile of c. It walks over k in steps of kDepth: a slice of a and one of
// b go to shared memory, from where each thread multiplies a small tile of its own that stays in
// registers. Every element fetched from memory then serves a whole tile side of products, and every
// element read from shared memory a side of the thread's tile. Slices are fetched into registers
// while the previous ones are multiplied, and shared memory holds two of each, so that one barrier
// a step suffices.

#include "core/cuda/gemm_backends_cuda.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kDepth = 8;  // k of a slice

// Everything follows from the elements P that one access to shared memory moves. The lanes of a
// warp stand 4 x 8, its warps 4 x 2; a thread has 2 x 2 packs of P x P elements, a warp's reach
// apart, so that the packs that lanes read at once lie side by side.
//
//   thread  2P x 2P      warp  8P x 16P      block  32P x 32P      (P = 4 for f32: 128 x 128)
template <class Acc>
struct TileShape {
  static constexpr int kPack = kPackSize<Acc>;
  static constexpr int kThread = 2 * kPack;
  static constexpr int kBlock = 32 * kPack;
  // A slice lies by lines of one k. The gap spreads the columns of a line over the banks when
  // neighbouring threads write neighbouring k, and keeps lines aligned to packs.
  static constexpr int kLine = kBlock + kPack;
  static constexpr int kShare = kBlock * kDepth / kThreads;  // elements of a slice a thread fetches

  // First row and column of the thread's tile in the block's; its second pack of rows is
  // kSecondRow further, of columns kSecondColumn.
  static constexpr int kSecondRow = 4 * kPack, kSecondColumn = 8 * kPack;
  __device__ static int row() {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    return warp / 2 * (8 * kPack) + lane / 8 * kPack;
  }
  __device__ static int column() {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    return warp % 2 * (16 * kPack) + lane % 8 * kPack;
  }
};

// One thread's part of the slices of an operand, seen as [rows, k] for a and [columns, k] for b:
// "across" is the row or column. Neighbouring threads fetch neighbouring elements.
template <class T>
class SliceShare {
  using Acc = Accumulator<T>;
  using Shape = TileShape<Acc>;

 public:
  // `by_k`: elements of one row (column) with neighbouring k are neighbours in memory.
  __device__ SliceShare(const T* matrix, int64_t ld, bool by_k, int64_t first, int64_t count) {
    const int thread = threadIdx.x;
    k_ = by_k ? thread % kDepth : thread / Shape::kBlock;
    across_ = by_k ? thread / kDepth : thread % Shape::kBlock;
    k_step_ = by_k ? 0 : kThreads / Shape::kBlock;
    across_step_ = by_k ? kThreads / kDepth : 0;
    const int64_t across_stride = by_k ? ld : 1;
    k_stride_ = by_k ? 1 : ld;
    stride_ = across_step_ * across_stride + k_step_ * k_stride_;
    source_ = matrix + (first + across_) * across_stride + k_ * k_stride_;
    left_ = count - first - across_;
  }

  // Elements of the slice that begins at k0; those outside the operand are 0.
  __device__ void fetch(int64_t k0, int64_t k_count) {
    const T* source = source_ + k0 * k_stride_;
    const int64_t k_left = k_count - k0 - k_;
#pragma unroll
    for (int i = 0; i < Shape::kShare; ++i) {
      const bool inside = i * across_step_ < left_ && i * k_step_ < k_left;
      value_[i] = inside ? static_cast<Acc>(source[i * stride_]) : Acc{0};
    }
  }

  __device__ void put(Acc* slice) const {
#pragma unroll
    for (int i = 0; i < Shape::kShare; ++i) {
      slice[(k_ + i * k_step_) * Shape::kLine + across_ + i * across_step_] = value_[i];
    }
  }

 private:
  const T* source_;  // the first element at k = 0
  int64_t stride_, k_stride_, left_;
  int k_, k_step_, across_, across_step_;
  Acc value_[Shape::kShare];
};

// sums += the product of two slices, k after k.
template <class Acc>
__device__ void multiply_slices(const Acc* a, const Acc* b,
                                Acc (&sums)[TileShape<Acc>::kThread][TileShape<Acc>::kThread]) {
  using Shape = TileShape<Acc>;
  a += Shape::row();
  b += Shape::column();
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const Pack<Acc> x[2] = {load_pack(a + k * Shape::kLine),
                            load_pack(a + k * Shape::kLine + Shape::kSecondRow)};
    const Pack<Acc> y[2] = {load_pack(b + k * Shape::kLine),
                            load_pack(b + k * Shape::kLine + Shape::kSecondColumn)};
#pragma unroll
    for (int i = 0; i < Shape::kThread; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kThread; ++j) {
        sums[i][j] += x[i / Shape::kPack].value[i % Shape::kPack] *
                      y[j / Shape::kPack].value[j % Shape::kPack];
      }
    }
  }
}

// `row` and `column` are those of the block's tile.
template <class T, class Out, class Acc>
__device__ void store_tile(const KernelProblem<T, Out>& p, Out* c, int64_t row, int64_t column,
                           const Acc (&sums)[TileShape<Acc>::kThread][TileShape<Acc>::kThread]) {
  using Shape = TileShape<Acc>;
  row += Shape::row();
  column += Shape::column();
#pragma unroll
  for (int i = 0; i < Shape::kThread; ++i) {
    const int64_t r = row + i / Shape::kPack * Shape::kSecondRow + i % Shape::kPack;
    Out* line = c + r * p.ldc;
#pragma unroll
    for (int j = 0; j < Shape::kThread; ++j) {
      const int64_t s = column + j / Shape::kPack * Shape::kSecondColumn + j % Shape::kPack;
      if (r < p.m && s < p.n) line[s] = p.scaled(sums[i][j], line + s);
    }
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads, 2)
    multiply_tiles(const __grid_constant__ KernelProblem<T, Out> p, int64_t tiles) {
  using Acc = Accumulator<T>;
  using Shape = TileShape<Acc>;
  __shared__ alignas(16) Acc a_slices[2][kDepth * Shape::kLine];
  __shared__ alignas(16) Acc b_slices[2][kDepth * Shape::kLine];
  const int64_t down = ceil_div(p.m, Shape::kBlock), over = ceil_div(p.n, Shape::kBlock);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const auto at = p.matrices(tile / (down * over));
    const int64_t row = tile / over % down * Shape::kBlock, column = tile % over * Shape::kBlock;
    SliceShare<T> a(at.a, p.a_layout.ld, !p.a_layout.transposed, row, p.m);
    SliceShare<T> b(at.b, p.b_layout.ld, p.b_layout.transposed, column, p.n);
    Acc sums[Shape::kThread][Shape::kThread] = {};
    a.fetch(0, p.k);
    b.fetch(0, p.k);
    a.put(a_slices[0]);
    b.put(b_slices[0]);
    __syncthreads();
    int current = 0;
    for (int64_t k = 0; k < p.k; k += kDepth) {
      const bool more = k + kDepth < p.k;
      if (more) {
        a.fetch(k + kDepth, p.k);
        b.fetch(k + kDepth, p.k);
      }
      multiply_slices<Acc>(a_slices[current], b_slices[current], sums);
      current ^= 1;
      if (more) {
        a.put(a_slices[current]);
        b.put(b_slices[current]);
      }
      __syncthreads();
    }
    store_tile(p, at.c, row, column, sums);
  }
}

}  // namespace

template <class T, class Out>
void tiled_gemm(const Cuda& cuda, const GemmProblem& p, const T* a, const T* b, Out* c) {
  constexpr int kBlock = TileShape<Accumulator<T>>::kBlock;
  const int64_t tiles = p.batches() * ceil_div(p.m, kBlock) * ceil_div(p.n, kBlock);
  XT_LAUNCH(cuda, (LaunchShape{grid_for(tiles, 1), kThreads}), (multiply_tiles<T, Out>),
            KernelProblem<T, Out>(p, a, b, c), tiles);
}

template void tiled_gemm(const Cuda&, const GemmProblem&, const double*, const double*, double*);
template void tiled_gemm(const Cuda&, const GemmProblem&, const float*, const float*, float*);
template void tiled_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*,
                         BFloat16*);
template void tiled_gemm(const Cuda&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
