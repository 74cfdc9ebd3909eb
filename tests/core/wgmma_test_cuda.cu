#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/tma.h"
#include "core/cuda/hopper/warpgroup.h"
#include "core/cuda/hopper/wgmma.h"
#include "core/cuda/launch.h"
#include "core/cuda/shared_memory.h"
#include "core/wgmma_test_kernels.h"

namespace xtrain {
namespace {

// In each of these the operands begin `kSpare` rows after the beginning of their tile where the sum
// runs along the width.
constexpr int kSpare = 8;

__device__ uint32_t aligned_shared() {
  extern __shared__ unsigned char shared[];
  return (shared_address(shared) + 1023) & ~1023u;
}

__device__ void put(uint32_t address, BFloat16 value) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(value.bits) : "memory");
}
__device__ BFloat16 get(uint32_t address) {
  BFloat16 value;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value.bits) : "r"(address) : "memory");
  return value;
}

// x [edge, depth] as an operand.
template <int kEdge, int kDepth, Contiguous kContiguous, int kSwizzle>
struct Operand {
  static constexpr bool kAlongWidth = kContiguous == Contiguous::sum;
  using Tile = std::conditional_t<kAlongWidth, SwizzledTile<kEdge + kSpare, kDepth, kSwizzle>,
                                  SwizzledTile<kDepth, kEdge, kSwizzle>>;
  static constexpr int kBytes = (Tile::kBytes + 1023) / 1024 * 1024;

  __device__ static void write(uint32_t tile, const BFloat16* x) {
    for (int i = threadIdx.x; i < kEdge * kDepth; i += kWarpgroup) {
      const int edge = i / kDepth, depth = i % kDepth;
      put(tile + (kAlongWidth ? Tile::offset(edge + kSpare, depth) : Tile::offset(depth, edge)),
          x[i]);
    }
  }
  __device__ static uint64_t descriptor(uint32_t tile, int step) {
    return kAlongWidth ? Tile::along_width(tile, step, kSpare) : Tile::along_rows(tile, step);
  }
};

template <int kColumns>
__device__ void write_sums(const WgmmaSums<kColumns>& sums, float* product) {
  const int warp = warp_of_warpgroup(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = 16 * warp + g + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
    product[row * kColumns + column] = sums.value[i];
  }
}

// Whether the left operand comes from registers or from shared memory with these elements
// contiguous.
enum class Left { registers, sum, edge };

template <int kColumns, int kDepth, Left kLeft, Contiguous kRight, int kSwizzle>
struct Recipe {
  static constexpr Contiguous kLeftOrder = kLeft == Left::edge ? Contiguous::edge : Contiguous::sum;
  using X = Operand<64, kDepth, kLeftOrder, kSwizzle>;
  using Y = Operand<kColumns, kDepth, kRight, kSwizzle>;
  static constexpr int kSharedBytes = 1024 + X::kBytes + Y::kBytes;
};

template <class R, int kColumns, int kDepth, Left kLeft, Contiguous kRight>
__global__ void __launch_bounds__(kWarpgroup)
    multiply_once(const BFloat16* x, const BFloat16* y, float* product) {
#if XT_SM90A
  const uint32_t left = aligned_shared(), right = left + R::X::kBytes;
  R::X::write(left, x);
  R::Y::write(right, y);
  async_fence();
  __syncthreads();
  WgmmaLeft<kDepth / 16> in_registers;
  const int warp = warp_of_warpgroup(), lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const BFloat16* pair =
          x + (16 * warp + g + i % 2 * 8) * kDepth + 16 * step + 2 * t + i / 2 * 8;
      in_registers.value[step][i] =
          pack_bf16(static_cast<float>(pair[0]), static_cast<float>(pair[1]));
    }
  }
  // What is not added to must not be read either.
  WgmmaSums<kColumns> sums;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums.value[i] = NAN;
  settle(in_registers);
  settle(sums);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    if constexpr (kLeft == Left::registers) {
      wgmma<kRight>(sums, in_registers.value[step], R::Y::descriptor(right, step), step > 0);
    } else {
      wgmma<R::kLeftOrder, kRight>(sums, R::X::descriptor(left, step),
                                   R::Y::descriptor(right, step), step > 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  settle(sums);
  write_sums(sums, product);
#endif
}

template <int kColumns, int kDepth, Left kLeft, Contiguous kRight, int kSwizzle>
WgmmaRecipe recipe() {
  constexpr const char* kLefts[] = {"registers", "rows", "columns"};
  using R = Recipe<kColumns, kDepth, kLeft, kRight, kSwizzle>;
  WgmmaRecipe result;
  result.what = std::string("left from ") + kLefts[static_cast<int>(kLeft)] + ", right " +
                (kRight == Contiguous::sum ? "along the width" : "along rows") + ", swizzle " +
                std::to_string(kSwizzle) + ", " + std::to_string(kColumns) + " columns, depth " +
                std::to_string(kDepth);
  result.columns = kColumns;
  result.depth = kDepth;
  result.multiply = [](const Cuda& cuda, const BFloat16* x, const BFloat16* y, float* product) {
    XT_LAUNCH(cuda, (LaunchShape{1, kWarpgroup, R::kSharedBytes}),
              (multiply_once<R, kColumns, kDepth, kLeft, kRight>), x, y, product);
  };
  return result;
}

// Both orders of the right operand with each kind of left operand.
template <int kColumns, int kDepth, int kSwizzle>
void add_recipes(std::vector<WgmmaRecipe>& recipes) {
  constexpr Contiguous kSum = Contiguous::sum, kEdge = Contiguous::edge;
  recipes.push_back(recipe<kColumns, kDepth, Left::registers, kSum, kSwizzle>());
  recipes.push_back(recipe<kColumns, kDepth, Left::registers, kEdge, kSwizzle>());
  recipes.push_back(recipe<kColumns, kDepth, Left::sum, kSum, kSwizzle>());
  recipes.push_back(recipe<kColumns, kDepth, Left::sum, kEdge, kSwizzle>());
  recipes.push_back(recipe<kColumns, kDepth, Left::edge, kSum, kSwizzle>());
  recipes.push_back(recipe<kColumns, kDepth, Left::edge, kEdge, kSwizzle>());
}

__global__ void __launch_bounds__(kWarpgroup)
    multiply_twice(const BFloat16* x, const BFloat16* y, const BFloat16* z, float* product,
                   BFloat16* rounded) {
#if XT_SM90A
  using Factor = Operand<64, 16, Contiguous::sum, 128>;
  using Values = Operand<64, 64, Contiguous::edge, 128>;  // z [rows, columns] is its transpose
  using Rounded = SwizzledTile<64, 64>;
  const uint32_t left = aligned_shared(), right = left + Factor::kBytes,
                 values = right + Factor::kBytes, out = values + Values::kBytes;
  Factor::write(left, x);
  Factor::write(right, y);
  for (int i = threadIdx.x; i < 64 * 64; i += kWarpgroup) {
    put(values + Values::Tile::offset(i / 64, i % 64), z[i]);
  }
  async_fence();
  __syncthreads();
  WgmmaSums<64> first, second;
  WgmmaLeft<4> packed;
  settle(first);
  wgmma_fence();
  multiply_along_width<Factor::Tile, Factor::Tile, 16>(first, left, kSpare, right, kSpare, false);
  wgmma_commit();
  wgmma_wait<0>();
  settle(first);
  pack_left(packed, first);
  settle(packed);
  settle(second);
  wgmma_fence();
  multiply_along_rows<Values::Tile>(second, packed, values, false);
  wgmma_commit();
  wgmma_wait<0>();
  settle(second);
  write_sums(second, product);
  store_rounded(out, warp_of_warpgroup(), first);
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += kWarpgroup) {
    rounded[i] = get(out + Rounded::offset(i / 64, i % 64));
  }
#endif
}

template <int kRows, int kWidth>
__global__ void copy_one_tile(const __grid_constant__ CUtensorMap from,
                              const __grid_constant__ CUtensorMap to, int b, int h, int row,
                              BFloat16* tile) {
#if XT_SM90A
  using Tile = SwizzledTile<kRows, kWidth>;
  __shared__ uint64_t barrier_memory;
  const uint32_t shared = aligned_shared();
  const Mbarrier landed(shared_address(&barrier_memory));
  for (int i = threadIdx.x; i < kRows * kWidth; i += blockDim.x) {
    put(shared + i * 2, BFloat16(NAN));
  }
  async_fence();
  if (threadIdx.x == 0) {
    landed.init(1);
    mbarrier_init_done();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    landed.arrive_expecting(Tile::kBytes);
    load_tile(shared, from, b, h, row, landed);
  }
  landed.wait(0);
  for (int i = threadIdx.x; i < kRows * kWidth; i += blockDim.x) {
    tile[i] = get(shared + Tile::offset(i / kWidth, i % kWidth));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    store_tile(to, b, h, row, shared);
    store_commit();
    store_wait_read();
  }
#endif
}

template <int kStages>
__global__ void copy_tiles(const __grid_constant__ CUtensorMap x, int tiles, BFloat16* y) {
#if XT_SM90A
  using Tile = SwizzledTile<64, 64>;
  __shared__ uint64_t ring_memory[2 * kStages];
  const uint32_t shared = aligned_shared();
  const StageRing<kStages> ring(shared_address(ring_memory));
  if (threadIdx.x == 0) {
    ring.init(2);
    mbarrier_init_done();
  }
  __syncthreads();
  const int warpgroup = warpgroup_index();
  for (int i = 0; i < tiles; ++i) {
    const uint32_t stage = shared + ring.stage_of(i) * Tile::kBytes;
    if (warpgroup == 0) {
      if (threadIdx.x != 0) continue;
      ring.wait_empty(i);
      ring.full(i).arrive_expecting(Tile::kBytes);
      load_tile(stage, x, 0, 0, i * 64, ring.full(i));
    } else {
      ring.wait_full(i);
      for (int e = threadIdx.x % kWarpgroup; e < 64 * 64; e += kWarpgroup) {
        y[((warpgroup - 1) * tiles + i) * 64 * 64 + e] = get(stage + Tile::offset(e / 64, e % 64));
      }
      named_barrier_sync(warpgroup, kWarpgroup);
      if (threadIdx.x % kWarpgroup == 0) ring.empty(i).arrive();
    }
  }
#endif
}

}  // namespace

std::vector<WgmmaRecipe> wgmma_recipes() {
  std::vector<WgmmaRecipe> recipes;
  add_recipes<64, 64, 128>(recipes);
  add_recipes<128, 128, 128>(recipes);
  add_recipes<256, 64, 128>(recipes);
  add_recipes<64, 32, 64>(recipes);
  add_recipes<96, 96, 64>(recipes);
  // Every other number of columns, and chunks that are part full.
  recipes.push_back(recipe<32, 64, Left::sum, Contiguous::sum, 128>());
  recipes.push_back(recipe<48, 64, Left::sum, Contiguous::sum, 128>());
  recipes.push_back(recipe<80, 128, Left::sum, Contiguous::sum, 128>());
  recipes.push_back(recipe<112, 64, Left::registers, Contiguous::sum, 128>());
  recipes.push_back(recipe<144, 64, Left::sum, Contiguous::sum, 128>());
  recipes.push_back(recipe<160, 64, Left::registers, Contiguous::edge, 128>());
  recipes.push_back(recipe<176, 64, Left::sum, Contiguous::sum, 128>());
  recipes.push_back(recipe<192, 80, Left::registers, Contiguous::edge, 128>());
  recipes.push_back(recipe<32, 128, Left::registers, Contiguous::edge, 64>());
  recipes.push_back(recipe<96, 64, Left::registers, Contiguous::edge, 128>());
  return recipes;
}

void wgmma_chain(const Cuda& cuda, const BFloat16* x, const BFloat16* y, const BFloat16* z,
                 float* product, BFloat16* rounded) {
  XT_LAUNCH(cuda, (LaunchShape{1, kWarpgroup, 64 << 10}), multiply_twice, x, y, z, product,
            rounded);
}

bool copy_tile(const Cuda& cuda, const TileCopy& copy, int b, int h, int row, const BFloat16* from,
               BFloat16* to, BFloat16* tile) {
  const auto launch_as = [&](auto rows, auto width) {
    constexpr int kRows = decltype(rows)::value, kWidth = decltype(width)::value;
    if (copy.rows != kRows || copy.width != kWidth) return false;
    const auto map = [&](const BFloat16* x) {
      return map_of_tiles(TokenHeads{x, copy.batch, copy.time, copy.heads, kWidth,
                                     copy.batch_stride, copy.time_stride, copy.head_stride},
                          kRows);
    };
    const LaunchShape shape{1, 256, 1024 + SwizzledTile<kRows, kWidth>::kBytes};
    XT_LAUNCH(cuda, shape, (copy_one_tile<kRows, kWidth>), map(from), map(to), b, h, row, tile);
    return true;
  };
  using std::integral_constant;
  return launch_as(integral_constant<int, 64>(), integral_constant<int, 32>()) ||
         launch_as(integral_constant<int, 64>(), integral_constant<int, 64>()) ||
         launch_as(integral_constant<int, 128>(), integral_constant<int, 64>()) ||
         launch_as(integral_constant<int, 64>(), integral_constant<int, 96>()) ||
         launch_as(integral_constant<int, 128>(), integral_constant<int, 128>()) ||
         launch_as(integral_constant<int, 80>(), integral_constant<int, 256>());
}

void copy_through_ring(const Cuda& cuda, int stages, int tiles, const BFloat16* x, BFloat16* y) {
  const CUtensorMap map = map_of_tiles(TokenHeads{x, 1, tiles * 64, 1, 64, 0, 64, 0}, 64);
  const LaunchShape shape{1, 3 * kWarpgroup, 1024 + stages * SwizzledTile<64, 64>::kBytes};
  if (stages == 2) {
    XT_LAUNCH(cuda, shape, copy_tiles<2>, map, tiles, y);
  } else {
    XT_LAUNCH(cuda, shape, copy_tiles<4>, map, tiles, y);
  }
}

}  // namespace xtrain
