#pragma once
// What the wgmma kernels of flash attention share: the order of their work, what queries see of the
// keys, and maps for the copy engine.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/tensor_map.h"
#include "core/error.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "ops/attention/flash_mma_cuda.h"

namespace xtrain::flash_wgmma {

inline TokenHeads token_heads(const BFloat16* x, const HeadStrides& strides, int64_t batch,
                              int64_t time, int64_t heads, int64_t head_dim) {
  return TokenHeads{x, batch, time, heads, head_dim, strides.batch, strides.time, strides.head};
}
inline TokenHeads queries_of(const FlashProblem& p, const BFloat16* q) {
  const AttentionSizes& n = p.sizes;
  return token_heads(q, p.q, n.batch, n.queries, n.heads, n.head_dim);
}
inline TokenHeads keys_of(const FlashProblem& p, const BFloat16* k) {
  const AttentionSizes& n = p.sizes;
  return token_heads(k, p.k, n.batch, n.keys, n.kv_heads, n.head_dim);
}
inline TokenHeads values_of(const FlashProblem& p, const BFloat16* v) {
  const AttentionSizes& n = p.sizes;
  return token_heads(v, p.v, n.batch, n.keys, n.kv_heads, n.head_dim);
}
// Contiguous, as the output and its gradient are.
inline TokenHeads outputs_of(const FlashProblem& p, const BFloat16* o) {
  const AttentionSizes& n = p.sizes;
  const int64_t row = n.heads * n.head_dim;
  return token_heads(o, HeadStrides{n.queries * row, row, n.head_dim}, n.batch, n.queries, n.heads,
                     n.head_dim);
}

// What keeps the kernels from a problem whose tensors are `mapped`; empty where nothing does.
inline std::string obstacle(const Cuda& cuda, const FlashProblem& p,
                            std::span<const TokenHeads> mapped) {
  // The factor of the scores must stay a normal number, for it multiplies -infinity.
  constexpr double kSmallestScale = 1e-30;
  const int64_t dim = p.sizes.head_dim;
  if (!has_wgmma(cuda)) {
    return text("a GPU of compute capability 9.0 and code built for sm_90a; got ",
                gpu_of(cuda).compute_capability / 10.0);
  }
  if (p.drops) return text("no dropout; got p = ", p.dropout.dropout.p);
  if (!(p.scale >= kSmallestScale)) {
    return text("a scale of ", kSmallestScale, " or more; got ", p.scale);
  }
  if (dim != 32 && dim != 64 && dim != 96 && dim != 128 && dim != 256) {
    return text("head_dim 32, 64, 96, 128 or 256; got ", dim);
  }
  if (!flash_mma::sizes_fit(p.sizes)) {
    return text("positions that 32 bits can number; got ", p.sizes.batch, " sequences of ",
                p.sizes.heads, " heads, ", p.sizes.queries, " queries, ", p.sizes.keys, " keys");
  }
  for (const TokenHeads& x : mapped) {
    if (can_be_mapped(x)) continue;
    return text("tensors that are not empty, with every row at a multiple of 16 bytes; got [",
                x.batch, ", ", x.time, ", ", x.heads, ", ", x.width, "] with strides ",
                x.batch_stride, ", ", x.time_stride, ", ", x.head_stride, " at ",
                static_cast<const void*>(x.data));
  }
  return {};
}
inline void check_no_obstacle(const std::string& obstacle) {
  check(obstacle.empty(), "flash attention by wgmma needs ", obstacle,
        "; call attention_flash, which takes a kernel that fits");
}

// Tiles of all heads in the order in which they are begun: by groups of heads small enough for what
// a group reads to stay in the L2 cache, in a group by falling number of the tile. The last tiles
// of a causal mask see most keys: begun first, they leave short ones for the end.
struct TileOrder {
  int tiles_of_head, heads, heads_of_group;

  TileOrder(int64_t tiles, int64_t head_count, int64_t bytes_of_head)
      : tiles_of_head(static_cast<int>(tiles)), heads(static_cast<int>(head_count)) {
    constexpr int64_t kCacheBytes = int64_t{32} << 20;
    const int64_t fitting = kCacheBytes / std::max<int64_t>(1, bytes_of_head);
    heads_of_group = static_cast<int>(std::clamp<int64_t>(fitting, 1, head_count));
  }

  struct Place {
    int head, tile;
  };
  XT_HOST_DEVICE int count() const { return tiles_of_head * heads; }
  XT_HOST_DEVICE Place at(int index) const {
    const int group = index / (tiles_of_head * heads_of_group);
    const int first_head = group * heads_of_group, heads_left = heads - first_head;
    const int heads_here = heads_left < heads_of_group ? heads_left : heads_of_group;
    const int rest = index - first_head * tiles_of_head;
    return Place{first_head + rest % heads_here, tiles_of_head - 1 - rest / heads_here};
  }
};

#if defined(__CUDACC__)

using flash_mma::SeenKeys;

// What neighbouring queries see of the keys without documents, in 32-bit numbers: query i, counted
// from some query on, sees max(0, first + i) <= j < min(length, end + i).
struct SlidingRange {
  int first, end, length;

  __device__ static SlidingRange from(const VisibleKeys& visible, int batch, int query) {
    // No position reaches kFar (sizes_fit), so what is cut off there is outside anyway.
    constexpr int64_t kFar = 1 << 30;
    const int64_t position = int64_t{visible.position_base[batch]} + query;
    const auto near = [](int64_t x) { return static_cast<int>(max(-kFar, min(x, kFar))); };
    return SlidingRange{visible.window > 0 ? near(position - visible.window + 1) : near(-kFar),
                        visible.causal ? near(position + 1) : near(kFar),
                        min(visible.key_length[batch], static_cast<int>(visible.keys))};
  }
  __device__ int first_of(int i) const { return max(0, first + i); }
  __device__ int end_of(int i) const { return min(length, end + i); }
};

// What the queries first <= t < end see together, for a whole warp.
__device__ __forceinline__ SeenKeys seen_by(const VisibleKeys& visible, int batch, int first,
                                            int end) {
  SeenKeys seen;
  if (first >= end) return seen;
  if (!visible.document_start) {
    const SlidingRange range = SlidingRange::from(visible, batch, first);
    seen.any_first = range.first_of(0);
    seen.any_end = range.end_of(end - 1 - first);
    seen.all_first = range.first_of(end - 1 - first);
    seen.all_end = range.end_of(0);
    return seen;
  }
#pragma unroll 1
  for (int t = first + threadIdx.x % 32; t < end; t += 32) seen.add(visible.of(batch, t));
  return seen.over_warp();
}

// Tiles first <= j < end.
struct TileRange {
  int first, end;

  __device__ static TileRange of(const SeenKeys& seen, int keys) {
    if (seen.any_first >= seen.any_end) return TileRange{0, 0};
    return TileRange{seen.any_first / keys, (seen.any_end + keys - 1) / keys};
  }
  __device__ int count() const { return end - first; }
};

#endif

}  // namespace xtrain::flash_wgmma
