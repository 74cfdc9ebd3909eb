#pragma once
// What the tensor-core kernels of flash attention share. Rows and columns of a tile of scores are
// spread over the lanes of a warp as core/cuda/mma.h says: lane 4g + t holds columns 2t and 2t + 1
// of rows g and g + 8.

#include <algorithm>
#include <climits>
#include <cstdint>
#include <type_traits>

#include "ops/attention/flash_cuda_kernels.h"

#if defined(__CUDACC__)
#include "core/cuda/exponential.h"
#include "core/cuda/mma.h"
#endif

namespace xtrain::flash_mma {

// Whether every row of [batch, time, heads, D] begins at a multiple of 16 bytes, for whole pieces
// of 16 bytes in D.
inline bool rows_are_aligned(const BFloat16* x, const HeadStrides& strides, int64_t batch,
                             int64_t time, int64_t heads) {
  const auto fits = [](int64_t size, int64_t stride) { return size <= 1 || stride % 8 == 0; };
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && fits(batch, strides.batch) &&
         fits(time, strides.time) && fits(heads, strides.head);
}

inline bool inputs_are_aligned(const FlashProblem& p, const BFloat16* q, const BFloat16* k,
                               const BFloat16* v) {
  const AttentionSizes& n = p.sizes;
  return rows_are_aligned(q, p.q, n.batch, n.queries, n.heads) &&
         rows_are_aligned(k, p.k, n.batch, n.keys, n.kv_heads) &&
         rows_are_aligned(v, p.v, n.batch, n.keys, n.kv_heads);
}

// Positions are 32-bit numbers in the kernels, and so is the number of blocks.
inline bool sizes_fit(const AttentionSizes& n) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return n.queries <= kMost && n.keys <= kMost &&
         n.batch * n.heads * (std::max(n.queries, n.keys) / 32 + 1) <= kMost;
}

#if defined(__CUDACC__)

inline constexpr unsigned kAllLanes = 0xffffffffu;

// How far, in powers of 2, a score runs ahead of what is subtracted from all of its row before that
// moves. Any shift gives the same softmax as long as nothing overflows: sums of 2^8 are far from
// it, and with random inputs only the first tiles of keys move a shift.
inline constexpr float kShiftSlack = 8.0f;

// Over the four lanes that share a row.
__device__ inline float row_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// What some queries see together.
struct alignas(16) SeenKeys {
  int any_first = INT_MAX, any_end = 0;  // holds every key that some query sees
  int all_first = 0, all_end = INT_MAX;  // keys that every query sees

  __device__ void add(const KeyRange& range) {
    all_first = max(all_first, range.first);
    all_end = min(all_end, range.end);
    if (range.first == range.end) return;
    any_first = min(any_first, range.first);
    any_end = max(any_end, range.end);
  }
  __device__ void add(const SeenKeys& other) {
    any_first = min(any_first, other.any_first);
    any_end = max(any_end, other.any_end);
    all_first = max(all_first, other.all_first);
    all_end = min(all_end, other.all_end);
  }
  // The same over the queries of all lanes.
  __device__ SeenKeys over_warp() const {
    SeenKeys seen;
    seen.any_first = __reduce_min_sync(kAllLanes, any_first);
    seen.any_end = __reduce_max_sync(kAllLanes, any_end);
    seen.all_first = __reduce_max_sync(kAllLanes, all_first);
    seen.all_end = __reduce_min_sync(kAllLanes, all_end);
    return seen;
  }
  __device__ bool some_in(int first, int end) const { return any_first < end && first < any_end; }
  __device__ bool all_of(int first, int end) const { return all_first <= first && end <= all_end; }
};

// Whether dropout keeps columns 2t, 2t + 1 of rows g (bits 0, 1) and g + 8 (bits 2, 3) of a tile of
// 16 queries x 8 keys; `key` is a multiple of 4. The lanes of a quad of keys share the drawing.
__device__ inline unsigned kept_of_rows(const AttentionDropout& dropout, int64_t batch,
                                        int64_t head, int64_t query, int64_t key) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Philox4 words = dropout.words(batch, head, query + g + t % 2 * 8, key / 4 + t / 2);
  unsigned drawn = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) drawn |= static_cast<unsigned>(dropout.keeps(words.word[i])) << i;
  const unsigned other = __shfl_xor_sync(kAllLanes, drawn, 1);
  return t % 2 == 0 ? (drawn & 3) | (other & 3) << 2 : (other >> 2) | (drawn >> 2) << 2;
}

// A kernel that drops nothing need not read the numbers that would say what.
template <bool kDrops>
__device__ AttentionDropout dropout_of(const FlashProblem& problem) {
  DropoutSource source;
  if constexpr (kDrops) source = problem.dropout;
  return AttentionDropout(source);
}

// x [queries, keys] times the factors of dropout.
template <int kRowTiles, int kColumnTiles>
__device__ void drop_rows(float (&x)[kRowTiles][kColumnTiles][4], const AttentionDropout& dropout,
                          int64_t batch, int64_t head, int64_t query, int64_t key) {
  const float factor = static_cast<float>(dropout.kept);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const unsigned kept = kept_of_rows(dropout, batch, head, query + m * 16, key + n * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[m][n][i] *= kept >> i & 1 ? factor : 0.0f;
    }
  }
}

// x [queries, keys] becomes `hidden` where a query does not see a key. `ranges` are those of the
// warp's queries.
template <int kRowTiles, int kColumnTiles>
__device__ void mask_rows(float (&x)[kRowTiles][kColumnTiles][4], const KeyRange* ranges,
                          int first_key, float hidden) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const KeyRange range = ranges[m * 16 + h * 8 + g];
      const unsigned count = range.end - range.first;
      const unsigned offset = first_key + 2 * t - range.first;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        if (offset + n * 8 >= count) x[m][n][2 * h] = hidden;
        if (offset + n * 8 + 1 >= count) x[m][n][2 * h + 1] = hidden;
      }
    }
  }
}

// What the queries of a block see together, and those of a warp.
struct SeenByQueries {
  SeenKeys block, warp;
};

// Reads the ranges of a block's queries, from `first` on, into shared memory: those from `queries`
// on do not exist and see nothing.
template <class Tiling>
__device__ SeenByQueries read_ranges(const FlashProblem& problem, int64_t batch, int first,
                                     int queries, KeyRange* ranges) {
  static_assert(Tiling::kQueryCount % 32 == 0 && Tiling::kWarpQueries <= 32);
  for (int i = threadIdx.x; i < Tiling::kQueryCount; i += Tiling::kThreads) {
    ranges[i] = i < queries ? problem.visible.of(batch, first + i) : KeyRange{};
  }
  __syncthreads();  // the ranges are there
  SeenByQueries sees;
  const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * Tiling::kWarpQueries + lane;
#pragma unroll
  for (int i = 0; i < Tiling::kQueryCount; i += 32) {
    if (i + lane < queries) sees.block.add(ranges[i + lane]);
  }
  if (lane < Tiling::kWarpQueries && mine < queries) sees.warp.add(ranges[mine]);
  return {sees.block.over_warp(), sees.warp.over_warp()};
}

// The keys and values of one head on their way to the stages of shared memory, kStageKeys at a
// time. Keys that no query of the block sees are not read.
template <class Tiling>
class KeyStages {
 public:
  __device__ KeyStages(const FlashProblem& problem, const BFloat16* k, const BFloat16* v,
                       unsigned batch, unsigned kv_head, const SeenKeys& seen, uint32_t stages)
      : problem_(problem),
        k_(k + batch * problem.k.batch + kv_head * problem.k.head),
        v_(v + batch * problem.v.batch + kv_head * problem.v.head),
        seen_(seen),
        stages_(stages) {}

  // Those from `key` on.
  __device__ void copy_async(int key, int stage) const {
    const uint32_t k_tile = stages_ + stage * Tiling::kStageBytes;
    const int first = seen_.any_first - key, end = seen_.any_end - key;
    copy_rows(k_tile, k_ + key * problem_.k.time, problem_.k.time, first, end);
    copy_rows(k_tile + Tiling::kKeyBytes, v_ + key * problem_.v.time, problem_.v.time, first, end);
  }

 private:
  __device__ static void copy_rows(uint32_t tile, const BFloat16* from, int64_t stride, int first,
                                   int end) {
    copy_rows_async<Tiling::kWidth, Tiling::kStageKeys, Tiling::kThreads>(tile, from, stride, first,
                                                                          end);
  }

  const FlashProblem& problem_;
  const BFloat16 *k_, *v_;
  const SeenKeys& seen_;
  uint32_t stages_;
};

// Writes neighbouring elements of a row of a gradient.
__device__ inline void store_pair(const FlashGradient& gradient, int64_t offset, float x0,
                                  float x1) {
  const auto store = [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    struct alignas(2 * sizeof(Out)) Pair {
      Out first, second;
    };
    Out *a = data + offset, *b = a + gradient.dim;
    const bool together = gradient.dim == 1 && reinterpret_cast<uintptr_t>(a) % sizeof(Pair) == 0;
    if (gradient.accumulate) {
      x0 += static_cast<float>(*a);
      x1 += static_cast<float>(*b);
    }
    if (together) {
      *reinterpret_cast<Pair*>(a) = Pair{Out(x0), Out(x1)};
    } else {
      *a = Out(x0);
      *b = Out(x1);
    }
  };
  gradient.wide ? store(static_cast<float*>(gradient.data))
                : store(static_cast<BFloat16*>(gradient.data));
}

// Word i of lane t of a quad of lanes becomes word t of lane i.
__device__ inline void transpose_words(uint32_t (&x)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t& low = x[distance == 1 ? 2 * i : i];
      uint32_t& high = x[distance == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(kAllLanes, upper ? low : high, distance);
      (upper ? low : high) = other;
    }
  }
}

// Whether rows of bf16 begin at multiples of 16 bytes and are overwritten.
__device__ inline bool stores_words(const FlashGradient& gradient) {
  return !gradient.wide && !gradient.accumulate && gradient.dim == 1 &&
         ((gradient.batch | gradient.time | gradient.head) & 7) == 0 &&
         (reinterpret_cast<uintptr_t>(gradient.data) & 15) == 0;
}

// gradient rows = (+=) scale * sums of a warp, for the kRowTiles * 16 rows from `row` of one head.
template <int kRowTiles, int kColumnTiles>
__device__ void store_rows(const FlashGradient& gradient, int64_t batch, int64_t head, int64_t row,
                           int64_t rows, float scale,
                           const float (&sums)[kRowTiles][kColumnTiles][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t start = batch * gradient.batch + head * gradient.head;
  if (stores_words(gradient)) {
    // The words of four neighbouring tiles become 16 bytes of one of them in each lane.
    static_assert(kColumnTiles % 4 == 0);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t r = row + m * 16 + h * 8 + g;
        BFloat16* to = static_cast<BFloat16*>(gradient.data) + start + r * gradient.time + t * 8;
#pragma unroll
        for (int n = 0; n < kColumnTiles; n += 4) {
          uint32_t x[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            x[i] = pack_bf16(scale * sums[m][n + i][2 * h], scale * sums[m][n + i][2 * h + 1]);
          }
          transpose_words(x);
          if (r < rows) *reinterpret_cast<uint4*>(to + n * 8) = make_uint4(x[0], x[1], x[2], x[3]);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t r = row + m * 16 + h * 8 + g;
      if (r >= rows) continue;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        store_pair(gradient, start + r * gradient.time + (n * 8 + 2 * t) * gradient.dim,
                   scale * sums[m][n][2 * h], scale * sums[m][n][2 * h + 1]);
      }
    }
  }
}

#endif

}  // namespace xtrain::flash_mma
