#pragma once
// What the wgmma kernels of flash attention share: the order of their work, what queries see of the
// keys, and maps for the copy engine.

#include <algorithm>
#include <cstdint>

#include "core/cuda/hopper/tensor_map.h"
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

// What the queries [query, query + count) see together, for a whole warp.
__device__ __forceinline__ SeenKeys seen_by(const VisibleKeys& visible, int batch, int query,
                                            int count) {
  SeenKeys seen;
  if (count <= 0) return seen;
  if (!visible.document_start) {
    const KeyRange first = visible.without_documents(batch, query);
    const KeyRange last = visible.without_documents(batch, query + count - 1);
    seen.any_first = first.first;
    seen.any_end = last.end;
    seen.all_first = last.first;
    seen.all_end = first.end;
    return seen;
  }
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < count; i += 32) seen.add(visible.of(batch, query + i));
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
