// The query kernel of the backward pass of flash attention by mma.sync. It owns a tile of queries
// and walks over the tiles of keys that they see:
//
//   p = 2^(factor q k^T - log2_sum)      ds = p (dy v^T - delta)      dq += ds k
//
// Since it needs log2_sum, delta and ranges of its own queries, it also keeps them for the key
// kernel.

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "core/cuda/pack.h"
#include "ops/attention/flash_mma_backward_cuda.h"

namespace xtrain::flash_mma {
namespace {

// log2_sum and delta of rows g and g + 8 of each row tile of a warp, the same in the four lanes of
// a row.
template <int kWidth, int kRowTiles>
struct RowTerms {
  float log2_sum[kRowTiles][2], delta[kRowTiles][2];

  __device__ RowTerms(const FlashBackward<BFloat16>& call, int64_t batch, int64_t head,
                      int first_query) {
    const AttentionSizes& n = call.problem.sizes;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // Without branches, so that all loads are under way together.
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t query = min(first_query + m * 16 + h * 8 + int64_t{g}, n.queries - 1);
        const int64_t start = ((batch * n.queries + query) * n.heads + head) * kWidth + t * 8;
        delta[m][h] = 0.0f;
#pragma unroll
        for (int d = 0; d < kWidth; d += 32) {
          delta[m][h] += dot_of_packs(call.o + start + d, call.dy + start + d);
        }
        log2_sum[m][h] = kLog2E * call.log_sum[(batch * n.heads + head) * n.queries + query];
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool exists = first_query + m * 16 + h * 8 + g < n.queries;
        const float sum = row_sum(delta[m][h]);
        delta[m][h] = exists ? sum : 0.0f;
        if (!exists) log2_sum[m][h] = INFINITY;
      }
    }
  }

  __device__ void store(const QueryTerms& terms, unsigned head_index, int first_query) const {
    const int g = threadIdx.x % 32 / 4;
    if (threadIdx.x % 4 != 0) return;
    const int64_t padded = int64_t{terms.tiles} * kQueryTile;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t query = first_query + m * 16 + h * 8 + g;
        if (query >= padded) continue;
        terms.log2_sum[head_index * padded + query] = log2_sum[m][h];
        terms.delta[head_index * padded + query] = delta[m][h];
      }
    }
  }

  // s [queries, keys] becomes 2^(factor s - log2_sum).
  template <int kColumnTiles>
  __device__ void to_probabilities(MmaSums<kRowTiles, kColumnTiles>& s, float factor) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kColumnTiles * 4; ++i) {
        float& x = s[m][i / 4][i % 4];
        x = exp2_approximate(x * factor - log2_sum[m][i % 4 / 2]);
      }
    }
  }

  // dp [queries, keys] becomes ds = p (dp - delta).
  template <int kColumnTiles>
  __device__ void to_score_gradients(MmaSums<kRowTiles, kColumnTiles>& dp,
                                     const MmaSums<kRowTiles, kColumnTiles>& p) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kColumnTiles * 4; ++i) {
        float& x = dp[m][i / 4][i % 4];
        x = p[m][i / 4][i % 4] * (x - delta[m][i % 4 / 2]);
      }
    }
  }

 private:
  __device__ static float dot_of_packs(const BFloat16* x, const BFloat16* y) {
    const Pack<BFloat16> a = load_pack(x), b = load_pack(y);
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) dot += float(a.value[i]) * float(b.value[i]);
    return dot;
  }
};

// By one warp, for a whole tile.
__device__ inline void store_ranges(const QueryTerms& terms, int64_t batch, int tile, int queries,
                                    const KeyRange* ranges) {
  if (tile >= terms.tiles) return;
  SeenKeys sees;
  for (int i = threadIdx.x % 32; i < kQueryTile; i += 32) {
    // Queries past the end see nothing, which must not count as what all queries see.
    terms.ranges[(batch * terms.tiles + tile) * kQueryTile + i] = ranges[i];
    if (tile * kQueryTile + i < queries) sees.add(ranges[i]);
  }
  sees = sees.over_warp();
  if (threadIdx.x % 32 == 0) terms.seen[batch * terms.tiles + tile] = sees;
}

// Warps, queries and keys; kBlocks share a multiprocessor. A stage holds the keys of kSteps steps,
// because every warp waits for the slowest between two stages. Where kHold, each warp keeps its
// rows of q and dy in registers.
template <int kHeadDim, int kWarps, int kRowTiles, int kKeys, int kBlocks, int kSteps, bool kHold>
struct QueryTiling {
  static constexpr int kWidth = kHeadDim, kRowTileCount = kRowTiles, kKeyCount = kKeys;
  static constexpr int kStageKeys = kKeys * kSteps;
  static constexpr bool kHolds = kHold;
  static constexpr int kThreads = kWarps * 32, kBlocksTogether = kBlocks;
  static constexpr int kWarpQueries = kRowTiles * 16, kQueryCount = kWarps * kWarpQueries;
  // Shared memory: queries, dy, two stages of keys and values, ranges of the queries.
  static constexpr int kQueryBytes = kQueryCount * kWidth * 2, kKeyBytes = kStageKeys * kWidth * 2;
  static constexpr int kStagesAt = 2 * kQueryBytes, kStageBytes = 2 * kKeyBytes;
  static constexpr int kRangesAt = kStagesAt + 2 * kStageBytes;
  static constexpr int kSharedBytes = kRangesAt + kQueryCount * static_cast<int>(sizeof(KeyRange));
};

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    query_gradients_mma(const FlashBackward<BFloat16> call, const QueryTerms terms,
                        BlockOrder order) {
  constexpr int kWidth = Tiling::kWidth, kKeys = Tiling::kKeyCount, kRows = Tiling::kRowTileCount;
  constexpr int kThreads = Tiling::kThreads, kStageKeys = Tiling::kStageKeys;
  extern __shared__ __align__(128) unsigned char shared[];
  KeyRange* ranges = reinterpret_cast<KeyRange*>(shared + Tiling::kRangesAt);
  const FlashProblem& problem = call.problem;
  const AttentionSizes& n = problem.sizes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const auto [head_index, rank] = order.place(blockIdx.x);
  const unsigned heads = static_cast<unsigned>(n.heads);
  const unsigned batch = head_index / heads, head = head_index % heads;
  const unsigned kv_head = head / static_cast<unsigned>(n.group());
  const int block_query = (order.tiles - 1 - rank) * Tiling::kQueryCount;
  const int queries = min(Tiling::kQueryCount, static_cast<int>(n.queries) - block_query);
  const uint32_t q_tile = shared_address(shared), dy_tile = q_tile + Tiling::kQueryBytes;
  const uint32_t stages = q_tile + Tiling::kStagesAt;
  copy_rows_async<kWidth, Tiling::kQueryCount, kThreads>(
      q_tile,
      call.q + batch * problem.q.batch + head * problem.q.head + block_query * problem.q.time,
      problem.q.time, 0, queries);
  copy_rows_async<kWidth, Tiling::kQueryCount, kThreads>(
      dy_tile, call.dy + ((batch * n.queries + block_query) * n.heads + head) * kWidth,
      n.heads * kWidth, 0, queries);
  copy_async_commit();

  const SeenByQueries sees = read_ranges<Tiling>(problem, batch, block_query, queries, ranges);
  const int warp_row = warp * Tiling::kWarpQueries;
  const KeyStages<Tiling> keys(problem, call.k, call.v, batch, kv_head, sees.block, stages);
  const int end_key = sees.block.any_end;
  int stage_key = sees.block.any_first / kStageKeys * kStageKeys, stage = 0;
  if (stage_key < end_key) keys.copy_async(stage_key, 0);
  copy_async_commit();

  const RowTerms<kWidth, kRows> of_row(call, batch, head, block_query + warp_row);
  of_row.store(terms, head_index, block_query + warp_row);
  if (head == 0 && warp < Tiling::kQueryCount / kQueryTile) {
    store_ranges(terms, batch, block_query / kQueryTile + warp, static_cast<int>(n.queries),
                 ranges + warp * kQueryTile);
  }
  if (call.dq.data == nullptr) {
    copy_async_wait<0>();
    return;
  }

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  if constexpr (Tiling::kHolds) {
    copy_async_wait<1>();
    __syncthreads();  // the queries are there
  }
  const LeftRows<kWidth, kRows, Tiling::kHolds> q_rows(plain, q_tile + warp_row * kWidth * 2);
  const LeftRows<kWidth, kRows, Tiling::kHolds> dy_rows(plain, dy_tile + warp_row * kWidth * 2);
  const float factor = static_cast<float>(problem.scale) * kLog2E;
  const AttentionDropout dropout = dropout_of<kDrops>(problem);
  MmaSums<kRows, kWidth / 8> dq;
  set_zero(dq);
  for (; stage_key < end_key; stage_key += kStageKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // the stage is there, and every warp is done with the one before
    if (stage_key + kStageKeys < end_key) keys.copy_async(stage_key + kStageKeys, stage ^ 1);
    copy_async_commit();
#pragma unroll 1
    for (int first = 0; first < kStageKeys; first += kKeys) {
      const int key = stage_key + first;
      if (!sees.warp.some_in(key, key + kKeys)) continue;
      const uint32_t k_tile = stages + stage * Tiling::kStageBytes + first * kWidth * 2;
      MmaSums<kRows, kKeys / 8> p, ds;
      set_zero(p);
      q_rows.multiply(p, plain, crossed, k_tile);
      of_row.to_probabilities(p, factor);
      set_zero(ds);
      dy_rows.multiply(ds, plain, crossed, k_tile + Tiling::kKeyBytes);
      if (!sees.warp.all_of(key, key + kKeys)) mask_rows(p, ranges + warp_row, key, 0.0f);
      if constexpr (kDrops) {
        drop_rows(ds, dropout, batch, head, block_query + warp_row, key);
      }
      of_row.to_score_gradients(ds, p);
      MmaLeft<kRows, kKeys / 16> left;
      pack_left(left, ds);
      multiply<kWidth>(dq, left, plain, k_tile);
    }
  }
  store_rows(call.dq, batch, head, block_query + warp_row, n.queries,
             static_cast<float>(problem.scale), dq);
}

template <class Tiling>
void launch_query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                            const QueryTerms& terms, const BlockOrder& order) {
  const LaunchShape shape{dim3(order.blocks()), dim3(Tiling::kThreads), Tiling::kSharedBytes};
  if (call.problem.drops) {
    XT_LAUNCH(cuda, shape, (query_gradients_mma<Tiling, true>), call, terms, order);
  } else {
    XT_LAUNCH(cuda, shape, (query_gradients_mma<Tiling, false>), call, terms, order);
  }
}

// Calls f(tiling) with the tiling of a head size.
template <class F>
void with_query_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(QueryTiling<32, 4, 2, 32, 3, 2, false>{});
    case 64:
      return f(QueryTiling<64, 4, 2, 32, 3, 2, false>{});
    case 96:
      return f(QueryTiling<96, 4, 2, 32, 2, 1, false>{});
    case 128:
      return f(QueryTiling<128, 4, 2, 32, 2, 1, false>{});
    case 256:
      return f(QueryTiling<256, 8, 1, 32, 1, 1, false>{});
  }
}

}  // namespace

void query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                     const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  with_query_tiling(n.head_dim, [&](auto tiling) {
    using Tiling = decltype(tiling);
    const int64_t key_bytes = n.keys * n.head_dim * 4 / n.group();
    launch_query_gradients<Tiling>(
        cuda, call, terms,
        block_order(n.batch * n.heads, ceil_div(terms.tiles * kQueryTile, Tiling::kQueryCount),
                    key_bytes, kBytesTogether));
  });
}

int64_t query_gradients_shared_bytes(int64_t head_dim) {
  int64_t bytes = 0;
  with_query_tiling(head_dim, [&](auto tiling) { bytes = decltype(tiling)::kSharedBytes; });
  return bytes;
}

}  // namespace xtrain::flash_mma
