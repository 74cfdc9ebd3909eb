#pragma once
// Products of bf16 on the tensor cores by wgmma of sm_90a: four warps together multiply
// [64, 16] by [16, N] and add to f32 sums in their registers, while they go on with other work.
//
// The right operand lies in shared memory, the left one there or in registers. With warp w of the
// warpgroup, g = lane / 4, t = lane % 4 a thread holds
//
//   of the sums [64, N]     float d[4j + 2h + e]      (16w + g + 8h, 8j + 2t + e)    h, e < 2
//   of the left [64, 16]    2 x bf16 a[i]             (16w + g + 8(i % 2), 2t + 8(i / 2) ..)
//
// so sums rounded and packed in their order, eight at a time, are the left operand of the next
// product: a chain of products needs no exchange between threads (pack_left).
//
// The order of things. Products run on their own after they are issued:
//
//   settle(sums)      the compiler must have written what the product reads, and
//   wgmma_fence()     so must the hardware: before the first product that touches registers which
//                     ordinary code has written
//   wgmma(...) ...    products of one shape on the same sums follow each other without a fence
//   wgmma_commit()    closes a group
//   wgmma_wait<n>()   until all but the last n groups are done; then settle(sums), for now the
//                     compiler may read them
//
// Between issue and wait nothing may touch the registers of a product, not even a copy that the
// compiler makes; where it cannot avoid one, ptxas makes all products wait for each other and says
// so (C7510 and its neighbours), which the build takes for an error.

#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)

#include "core/cuda/hopper/swizzled_tile.h"
#include "core/cuda/pack.h"

namespace xtrain {

// Which dimension of an operand lies contiguous in shared memory: the one that the sum runs along,
// or the one of the rows (left) or columns (right) of the product.
enum class Contiguous { sum = 0, edge = 1 };

// A thread's share of [64, kColumns].
template <int kColumns>
struct WgmmaSums {
  float value[kColumns / 2];
};

// A thread's share of a left operand [64, 16 * kSteps].
template <int kSteps>
struct WgmmaLeft {
  uint32_t value[kSteps][4];
};

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// Nothing that reads or writes the sums is moved across this. It costs no instruction.
template <int kColumns>
__device__ __forceinline__ void settle(WgmmaSums<kColumns>& sums) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) asm volatile("" : "+f"(sums.value[i])::"memory");
}
template <int kSteps>
__device__ __forceinline__ void settle(WgmmaLeft<kSteps>& left) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(left.value[step][i])::"memory");
  }
}

template <int kColumns>
__device__ __forceinline__ void set_zero(WgmmaSums<kColumns>& sums) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums.value[i] = 0.0f;
}

// The sums, rounded to bf16, as the left operand of a product that runs along their columns. Where
// the operand has more columns, they are 0.
template <int kColumns, int kSteps>
__device__ __forceinline__ void pack_left(WgmmaLeft<kSteps>& left,
                                          const WgmmaSums<kColumns>& sums) {
  static_assert(kColumns % 16 == 0 && kColumns <= 16 * kSteps);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left.value[step][i] = step < kColumns / 16 ? pack_bf16(sums.value[8 * step + 2 * i],
                                                             sums.value[8 * step + 2 * i + 1])
                                                 : 0;
    }
  }
}

// The instruction itself names every register, so each number of columns has its own text.
template <int kColumns>
struct WgmmaInstruction;

// clang-format off
#define XT_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define XT_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define XT_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define XT_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define XT_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define XT_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define XT_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define XT_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define XT_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define XT_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define XT_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define XT_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define XT_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define XT_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define XT_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define XT_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define XT_NAMES_UP_TO_8 XT_NAMES_0
#define XT_NAMES_UP_TO_16 XT_NAMES_UP_TO_8 XT_NAMES_8
#define XT_NAMES_UP_TO_24 XT_NAMES_UP_TO_16 XT_NAMES_16
#define XT_NAMES_UP_TO_32 XT_NAMES_UP_TO_24 XT_NAMES_24
#define XT_NAMES_UP_TO_40 XT_NAMES_UP_TO_32 XT_NAMES_32
#define XT_NAMES_UP_TO_48 XT_NAMES_UP_TO_40 XT_NAMES_40
#define XT_NAMES_UP_TO_56 XT_NAMES_UP_TO_48 XT_NAMES_48
#define XT_NAMES_UP_TO_64 XT_NAMES_UP_TO_56 XT_NAMES_56
#define XT_NAMES_UP_TO_72 XT_NAMES_UP_TO_64 XT_NAMES_64
#define XT_NAMES_UP_TO_80 XT_NAMES_UP_TO_72 XT_NAMES_72
#define XT_NAMES_UP_TO_88 XT_NAMES_UP_TO_80 XT_NAMES_80
#define XT_NAMES_UP_TO_96 XT_NAMES_UP_TO_88 XT_NAMES_88
#define XT_NAMES_UP_TO_104 XT_NAMES_UP_TO_96 XT_NAMES_96
#define XT_NAMES_UP_TO_112 XT_NAMES_UP_TO_104 XT_NAMES_104
#define XT_NAMES_UP_TO_120 XT_NAMES_UP_TO_112 XT_NAMES_112
#define XT_NAMES_UP_TO_128 XT_NAMES_UP_TO_120 XT_NAMES_120
#define XT_SUMS_8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define XT_SUMS_UP_TO_8(d) XT_SUMS_8(d, 0)
#define XT_SUMS_UP_TO_16(d) XT_SUMS_UP_TO_8(d), XT_SUMS_8(d, 8)
#define XT_SUMS_UP_TO_24(d) XT_SUMS_UP_TO_16(d), XT_SUMS_8(d, 16)
#define XT_SUMS_UP_TO_32(d) XT_SUMS_UP_TO_24(d), XT_SUMS_8(d, 24)
#define XT_SUMS_UP_TO_40(d) XT_SUMS_UP_TO_32(d), XT_SUMS_8(d, 32)
#define XT_SUMS_UP_TO_48(d) XT_SUMS_UP_TO_40(d), XT_SUMS_8(d, 40)
#define XT_SUMS_UP_TO_56(d) XT_SUMS_UP_TO_48(d), XT_SUMS_8(d, 48)
#define XT_SUMS_UP_TO_64(d) XT_SUMS_UP_TO_56(d), XT_SUMS_8(d, 56)
#define XT_SUMS_UP_TO_72(d) XT_SUMS_UP_TO_64(d), XT_SUMS_8(d, 64)
#define XT_SUMS_UP_TO_80(d) XT_SUMS_UP_TO_72(d), XT_SUMS_8(d, 72)
#define XT_SUMS_UP_TO_88(d) XT_SUMS_UP_TO_80(d), XT_SUMS_8(d, 80)
#define XT_SUMS_UP_TO_96(d) XT_SUMS_UP_TO_88(d), XT_SUMS_8(d, 88)
#define XT_SUMS_UP_TO_104(d) XT_SUMS_UP_TO_96(d), XT_SUMS_8(d, 96)
#define XT_SUMS_UP_TO_112(d) XT_SUMS_UP_TO_104(d), XT_SUMS_8(d, 104)
#define XT_SUMS_UP_TO_120(d) XT_SUMS_UP_TO_112(d), XT_SUMS_8(d, 112)
#define XT_SUMS_UP_TO_128(d) XT_SUMS_UP_TO_120(d), XT_SUMS_8(d, 120)

// kSums = columns / 2; a .. g are the numbers of the operands behind the sums.
#define XT_WGMMA(columns, kSums, a, b, c, d, e, f, g)                                         \
  template <>                                                                                 \
  struct WgmmaInstruction<columns> {                                                          \
    template <Contiguous kLeft, Contiguous kRight>                                            \
    __device__ __forceinline__ static void run(float (&x)[kSums], uint64_t left,              \
                                               uint64_t right, bool adds) {                   \
      asm volatile(                                                                           \
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #c ", 0;\n"                              \
          "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 "                   \
          "{" XT_NAMES_UP_TO_##kSums "}, %" #a ", %" #b ", adds, 1, 1, %" #d ", %" #e ";\n}"  \
          : XT_SUMS_UP_TO_##kSums(x)                                                          \
          : "l"(left), "l"(right), "r"(static_cast<int>(adds)), "n"(static_cast<int>(kLeft)), \
            "n"(static_cast<int>(kRight)));                                                   \
    }                                                                                         \
    template <Contiguous kRight>                                                              \
    __device__ __forceinline__ static void run(float (&x)[kSums], const uint32_t (&left)[4],  \
                                               uint64_t right, bool adds) {                   \
      asm volatile(                                                                           \
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #f ", 0;\n"                              \
          "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 "                   \
          "{" XT_NAMES_UP_TO_##kSums "}, {%" #a ", %" #b ", %" #c ", %" #d "}, "              \
          "%" #e ", adds, 1, 1, %" #g ";\n}"                                                  \
          : XT_SUMS_UP_TO_##kSums(x)                                                          \
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),               \
            "r"(static_cast<int>(adds)), "n"(static_cast<int>(kRight)));                      \
    }                                                                                         \
  };
XT_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
XT_WGMMA(48, 24, 24, 25, 26, 27, 28, 29, 30)
XT_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
XT_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
XT_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
XT_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62)
XT_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
XT_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78)
XT_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
XT_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
XT_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
XT_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef XT_WGMMA
#undef XT_NAMES_0
#undef XT_NAMES_8
#undef XT_NAMES_16
#undef XT_NAMES_24
#undef XT_NAMES_32
#undef XT_NAMES_40
#undef XT_NAMES_48
#undef XT_NAMES_56
#undef XT_NAMES_64
#undef XT_NAMES_72
#undef XT_NAMES_80
#undef XT_NAMES_88
#undef XT_NAMES_96
#undef XT_NAMES_104
#undef XT_NAMES_112
#undef XT_NAMES_120
#undef XT_NAMES_UP_TO_8
#undef XT_SUMS_UP_TO_8
#undef XT_NAMES_UP_TO_16
#undef XT_SUMS_UP_TO_16
#undef XT_NAMES_UP_TO_24
#undef XT_SUMS_UP_TO_24
#undef XT_NAMES_UP_TO_32
#undef XT_SUMS_UP_TO_32
#undef XT_NAMES_UP_TO_40
#undef XT_SUMS_UP_TO_40
#undef XT_NAMES_UP_TO_48
#undef XT_SUMS_UP_TO_48
#undef XT_NAMES_UP_TO_56
#undef XT_SUMS_UP_TO_56
#undef XT_NAMES_UP_TO_64
#undef XT_SUMS_UP_TO_64
#undef XT_NAMES_UP_TO_72
#undef XT_SUMS_UP_TO_72
#undef XT_NAMES_UP_TO_80
#undef XT_SUMS_UP_TO_80
#undef XT_NAMES_UP_TO_88
#undef XT_SUMS_UP_TO_88
#undef XT_NAMES_UP_TO_96
#undef XT_SUMS_UP_TO_96
#undef XT_NAMES_UP_TO_104
#undef XT_SUMS_UP_TO_104
#undef XT_NAMES_UP_TO_112
#undef XT_SUMS_UP_TO_112
#undef XT_NAMES_UP_TO_120
#undef XT_SUMS_UP_TO_120
#undef XT_NAMES_UP_TO_128
#undef XT_SUMS_UP_TO_128
#undef XT_SUMS_8
// clang-format on

// sums (+)= left right, both by descriptors (SwizzledTile); without `adds` what the sums held
// before is not read.
template <Contiguous kLeft, Contiguous kRight, int kColumns>
__device__ __forceinline__ void wgmma(WgmmaSums<kColumns>& sums, uint64_t left, uint64_t right,
                                      bool adds) {
  WgmmaInstruction<kColumns>::template run<kLeft, kRight>(sums.value, left, right, adds);
}
// The same with the left operand in registers.
template <Contiguous kRight, int kColumns>
__device__ __forceinline__ void wgmma(WgmmaSums<kColumns>& sums, const uint32_t (&left)[4],
                                      uint64_t right, bool adds) {
  WgmmaInstruction<kColumns>::template run<kRight>(sums.value, left, right, adds);
}

// sums (+)= x y^T over kWidth: x is 64 rows of one tile, from `left_row` on, y kColumns rows of the
// other from `right_row` on.
template <class Left, class Right, int kWidth, int kColumns>
__device__ __forceinline__ void multiply_along_width(WgmmaSums<kColumns>& sums, uint32_t left,
                                                     int left_row, uint32_t right, int right_row,
                                                     bool adds) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    wgmma<Contiguous::sum, Contiguous::sum>(sums, Left::along_width(left, step, left_row),
                                            Right::along_width(right, step, right_row),
                                            adds || step > 0);
  }
}

// sums (+)= x y: x [64, 16 * kSteps] in registers, y kColumns columns of a tile from `column` on.
template <class Right, int kSteps, int kColumns>
__device__ __forceinline__ void multiply_along_rows(WgmmaSums<kColumns>& sums,
                                                    const WgmmaLeft<kSteps>& left, uint32_t right,
                                                    bool adds, int column = 0) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    wgmma<Contiguous::edge>(sums, left.value[step], Right::along_rows(right, step, column),
                            adds || step > 0);
  }
}

// Four 8 x 8 matrices, each lane a pair of neighbours as in the sums, into shared memory; lanes
// 8i .. 8i + 7 give the addresses of the rows of matrix i.
__device__ inline void store_matrices(uint32_t address, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

// The warpgroup's sums [64, kColumns], rounded to bf16, into a tile of 64 rows. `warp` of the
// warpgroup.
template <int kColumns>
__device__ __forceinline__ void store_rounded(uint32_t tile, int warp,
                                              const WgmmaSums<kColumns>& sums) {
  using Tile = SwizzledTile<64, kColumns>;
  const int lane = threadIdx.x % 32;
  const int row = warp * 16 + lane % 16, piece = lane / 16;
#pragma unroll
  for (int column = 0; column < kColumns; column += 16) {
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = pack_bf16(sums.value[column / 2 + 2 * i], sums.value[column / 2 + 2 * i + 1]);
    }
    store_matrices(tile + Tile::offset(row, column + piece * 8), packed);
  }
}

}  // namespace xtrain

#endif
