// The key kernels of the backward pass of flash attention by mma.sync. A block owns a tile of keys
// and walks over the tiles of queries that see some of them, in all query heads that share the key
// head:
//
//   p^T = 2^(factor k q^T - log2_sum)      dv += p^T dy
//   ds^T = p^T (v dy^T - delta)            dk += ds^T q
//
// By warps: each warp owns kRowTiles * 16 keys and sums both dv and dk. For small heads, where both
// sums fit into registers.
//
// By pairs: two warps own kRowTiles * 16 keys. One computes p and sums dv, the other computes ds
// with the p that it gets from the first through shared memory, and sums dk. So each holds one sum,
// and each tile that it reads from shared memory serves twice as many keys as if every warp
// computed all four products. Where kLags, the second warp adds a tile's product to dk only with
// the next tile: the tensor cores then have work while the first computes exponentials.

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_backward_cuda.h"

namespace xtrain::flash_mma {
namespace {

// Walks over the groups of kGroup tiles of queries that see some of the keys [first_key, end_key),
// in ascending order, once for each of `heads` heads. Every lane of a warp must take part.
template <int kGroup>
class VisibleTiles {
 public:
  __device__ VisibleTiles(const SeenKeys* seen, int tiles, int first_key, int end_key, int heads)
      : seen_(seen),
        groups_(tiles / kGroup),
        first_key_(first_key),
        end_key_(end_key),
        heads_(heads) {
    advance();
  }
  __device__ bool at_end() const { return head_ >= heads_; }
  __device__ int head() const { return head_; }
  __device__ int query() const { return at_ * kGroup * kQueryTile; }  // the first of the group

  __device__ void advance() {
    while (waiting_ == 0) {
      chunk_ += kWarp;
      if (chunk_ >= groups_) {
        // What a head has no tile of the others have none of either.
        if (++head_ >= heads_ || !found_) {
          head_ = heads_;
          return;
        }
        chunk_ = 0;
      }
      waiting_ = __ballot_sync(kAllLanes, is_visible(chunk_ + threadIdx.x % kWarp));
      found_ |= waiting_ != 0;
    }
    at_ = chunk_ + __ffs(waiting_) - 1;
    waiting_ &= waiting_ - 1;
  }

 private:
  __device__ bool is_visible(int group) const {
    bool visible = false;
    for (int i = 0; i < kGroup && group < groups_; ++i) {
      visible |= seen_[group * kGroup + i].some_in(first_key_, end_key_);
    }
    return visible;
  }

  const SeenKeys* seen_;
  int groups_, first_key_, end_key_, heads_;
  int head_ = 0, chunk_ = -kWarp, at_ = 0;
  unsigned waiting_ = 0;  // bit i: group chunk + i is still to come
  bool found_ = false;
};

// The keys that a block owns, and where they come from.
struct KeyTile {
  unsigned batch, kv_head;
  int first, end;  // keys; those from `end` on are seen by no query

  __device__ KeyTile(const FlashProblem& problem, const BlockOrder& order, int keys) {
    const AttentionSizes& n = problem.sizes;
    const auto [head, rank] = order.place(blockIdx.x);  // the first keys are seen by most
    batch = head / static_cast<unsigned>(n.kv_heads);
    kv_head = head % static_cast<unsigned>(n.kv_heads);
    first = rank * keys;
    end = min(static_cast<int>(n.keys), problem.visible.key_length[batch]);
  }

  template <int kWidth, int kKeys, int kThreads>
  __device__ void copy_async(uint32_t tile, const BFloat16* x, const HeadStrides& strides) const {
    copy_rows_async<kWidth, kKeys, kThreads>(
        tile, x + batch * strides.batch + kv_head * strides.head + first * strides.time,
        strides.time, 0, end - first);
  }
};

// A stage of shared memory: queries, dy, log2_sum, delta, ranges, and seen of their tiles.
template <int kWidth, int kQueries>
struct QueryStage {
  static constexpr int kRowBytes = kQueries * kWidth * 2;
  static constexpr int kTermsAt = 2 * kRowBytes, kSeenAt = kTermsAt + kQueries * 16;
  static constexpr int kTiles = kQueries / kQueryTile > 1 ? kQueries / kQueryTile : 1;
  static constexpr int kBytes = kSeenAt + 128;

  // `head` counts the heads of the batch, `query` is a multiple of kQueries.
  template <int kThreads>
  __device__ static void copy_async(uint32_t stage, const FlashBackward<BFloat16>& call,
                                    const QueryTerms& terms, int64_t batch, int64_t head,
                                    int query) {
    const FlashProblem& problem = call.problem;
    const AttentionSizes& n = problem.sizes;
    const int queries = static_cast<int>(n.queries) - query;
    copy_rows_async<kWidth, kQueries, kThreads>(
        stage, call.q + batch * problem.q.batch + head * problem.q.head + query * problem.q.time,
        problem.q.time, 0, queries);
    copy_rows_async<kWidth, kQueries, kThreads>(
        stage + kRowBytes, call.dy + ((batch * n.queries + query) * n.heads + head) * kWidth,
        n.heads * kWidth, 0, queries);
    const int64_t padded = int64_t{terms.tiles} * kQueryTile;
    const int64_t at = (batch * n.heads + head) * padded + query;
    const int i = threadIdx.x;
    static_assert(kQueries <= kThreads);
    if (i < kTiles) {
      xtrain::copy_async(stage + kSeenAt + i * 16,
                         terms.seen + batch * terms.tiles + query / kQueryTile + i);
    }
    if (i >= kQueries) return;
    const void* from = terms.ranges + batch * padded + query + (i - kQueries / 2) * 2;
    if (i < kQueries / 2) from = terms.delta + at + (i - kQueries / 4) * 4;
    if (i < kQueries / 4) from = terms.log2_sum + at + i * 4;
    xtrain::copy_async(stage + kTermsAt + i * 16, from);
  }

  __device__ static const float* log2_sum(const unsigned char* stage) {
    return reinterpret_cast<const float*>(stage + kTermsAt);
  }
  __device__ static const float* delta(const unsigned char* stage) {
    return log2_sum(stage) + kQueries;
  }
  __device__ static SeenKeys seen(const unsigned char* stage, int tile) {
    return reinterpret_cast<const SeenKeys*>(stage + kSeenAt)[tile];
  }
  __device__ static const KeyRange* ranges(const unsigned char* stage) {
    return reinterpret_cast<const KeyRange*>(stage + kTermsAt + kQueries * 8);
  }
};

// s [keys, queries] becomes 2^(factor s - log2_sum).
template <int kRowTiles, int kColumnTiles>
__device__ void to_probabilities(MmaSums<kRowTiles, kColumnTiles>& s, const float* log2_sum,
                                 float factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const float2 sum = *reinterpret_cast<const float2*>(log2_sum + n * 8 + 2 * t);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = exp2_approximate(s[m][n][i] * factor - (i % 2 == 0 ? sum.x : sum.y));
      }
    }
  }
}

// p [keys, queries] becomes 0 where a query does not see a key.
template <int kRowTiles, int kColumnTiles>
__device__ void mask_probabilities(MmaSums<kRowTiles, kColumnTiles>& p, const KeyRange* ranges,
                                   int first_key) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const KeyRange range = ranges[n * 8 + 2 * t + e];
      const unsigned count = range.end - range.first, offset = first_key + g - range.first;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        if (offset + m * 16 >= count) p[m][n][e] = 0.0f;
        if (offset + m * 16 + 8 >= count) p[m][n][2 + e] = 0.0f;
      }
    }
  }
}

// Whether dropout keeps the sums of a lane: bit i is element i of a tile of 16 keys x 8 queries.
// Each lane draws for one query and four keys.
__device__ inline unsigned kept_of_columns(const AttentionDropout& dropout, int64_t batch,
                                           int64_t head, int64_t query, int64_t key) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Philox4 words = dropout.words(batch, head, query + lane % 8, key / 4 + lane / 8);
  unsigned drawn = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) drawn |= static_cast<unsigned>(dropout.keeps(words.word[i])) << i;
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int from = (g / 4 + i / 2 * 2) * 8 + 2 * t + i % 2;
    kept |= (__shfl_sync(kAllLanes, drawn, from) >> g % 4 & 1) << i;
  }
  return kept;
}

// Warps, keys and queries of the kernel by warps; kBlocks share a multiprocessor. A stage holds
// many queries, because every warp waits for the slowest between two stages.
template <int kHeadDim, int kWarps, int kRowTiles, int kQueries, int kBlocks, int kStageTiles>
struct WarpTiling {
  static_assert(kQueryTile % kQueries == 0);
  static constexpr int kWidth = kHeadDim, kRowTileCount = kRowTiles, kQueryCount = kQueries;
  static constexpr int kThreads = kWarps * 32, kBlocksTogether = kBlocks;
  static constexpr int kWarpKeys = kRowTiles * 16, kKeyCount = kWarps * kWarpKeys;
  // Shared memory: keys, values, two stages.
  static constexpr int kGroup = kStageTiles;
  using Stage = QueryStage<kWidth, kStageTiles * kQueryTile>;
  static constexpr int kKeyBytes = kKeyCount * kWidth * 2, kStagesAt = 2 * kKeyBytes;
  static constexpr int kSharedBytes = kStagesAt + 2 * Stage::kBytes;
};

// dp [keys, queries] becomes ds = p (dp - delta).
template <int kRowTiles, int kColumnTiles>
__device__ void to_score_gradients(MmaSums<kRowTiles, kColumnTiles>& dp,
                                   const MmaSums<kRowTiles, kColumnTiles>& p, const float* delta) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const float2 d = *reinterpret_cast<const float2*>(delta + n * 8 + 2 * (threadIdx.x % 4));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - (i % 2 == 0 ? d.x : d.y));
      }
    }
  }
}

// The factors of dropout on p, which is packed with them into `left`, and on dp.
template <int kRowTiles, int kColumnTiles>
__device__ void drop_columns(const MmaSums<kRowTiles, kColumnTiles>& p,
                             MmaLeft<kRowTiles, kColumnTiles / 2>& left,
                             MmaSums<kRowTiles, kColumnTiles>& dp, const AttentionDropout& dropout,
                             int64_t batch, int64_t head, int64_t query, int64_t key) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const unsigned kept = kept_of_columns(dropout, batch, head, query + n * 8, key + m * 16);
      float dropped[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float factor = kept >> i & 1 ? static_cast<float>(dropout.kept) : 0.0f;
        dropped[i] = p[m][n][i] * factor;
        dp[m][n][i] *= factor;
      }
      left[m][n / 2][n % 2 * 2] = pack_bf16(dropped[0], dropped[1]);
      left[m][n / 2][n % 2 * 2 + 1] = pack_bf16(dropped[2], dropped[3]);
    }
  }
}

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    key_gradients_by_warps(const FlashBackward<BFloat16> call, const QueryTerms terms,
                           BlockOrder order) {
  using Stage = typename Tiling::Stage;
  constexpr int kWidth = Tiling::kWidth, kRows = Tiling::kRowTileCount;
  constexpr int kQueries = Tiling::kQueryCount, kThreads = Tiling::kThreads;
  extern __shared__ __align__(128) unsigned char shared[];
  const FlashProblem& problem = call.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = static_cast<int>(problem.sizes.group());
  const KeyTile keys(problem, order, Tiling::kKeyCount);
  const int warp_key = keys.first + warp * Tiling::kWarpKeys;
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + Tiling::kKeyBytes;
  keys.template copy_async<kWidth, Tiling::kKeyCount, kThreads>(k_tile, call.k, problem.k);
  keys.template copy_async<kWidth, Tiling::kKeyCount, kThreads>(v_tile, call.v, problem.v);
  const SeenKeys* seen = terms.seen + int64_t{keys.batch} * terms.tiles;
  VisibleTiles<Tiling::kGroup> tiles(seen, terms.tiles, keys.first,
                                     min(keys.end, keys.first + Tiling::kKeyCount), group);
  const auto copy_queries = [&](int stage) {
    if (!tiles.at_end()) {
      Stage::template copy_async<kThreads>(k_tile + Tiling::kStagesAt + stage * Stage::kBytes, call,
                                           terms, keys.batch, keys.kv_head * group + tiles.head(),
                                           tiles.query());
    }
    copy_async_commit();
  };
  copy_queries(0);

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  const uint32_t k_rows = k_tile + warp * Tiling::kWarpKeys * kWidth * 2;
  const uint32_t v_rows = k_rows + Tiling::kKeyBytes;
  const float factor = static_cast<float>(problem.scale) * kLog2E;
  DropoutSource dropout_source;
  if constexpr (kDrops) dropout_source = problem.dropout;
  const AttentionDropout dropout(dropout_source);
  MmaSums<kRows, kWidth / 8> dk, dv;
  set_zero(dk);
  set_zero(dv);
  for (int stage = 0; !tiles.at_end(); stage ^= 1) {
    const int64_t head = keys.kv_head * group + tiles.head();
    const int query = tiles.query();
    tiles.advance();
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with the one before
    copy_queries(stage ^ 1);
    const unsigned char* at = shared + Tiling::kStagesAt + stage * Stage::kBytes;
#pragma unroll 1
    for (int first = 0; first < Tiling::kGroup * kQueryTile; first += kQueries) {
      const SeenKeys sees = Stage::seen(at, first / kQueryTile);
      if (!sees.some_in(warp_key, warp_key + Tiling::kWarpKeys)) continue;
      const uint32_t q_tile = shared_address(at) + first * kWidth * 2;
      const uint32_t dy_tile = q_tile + Stage::kRowBytes;
      MmaSums<kRows, kQueries / 8> p, ds;
      set_zero(p);
      multiply_rows<kWidth>(p, plain, k_rows, crossed, q_tile);
      to_probabilities(p, Stage::log2_sum(at) + first, factor);
      if (!sees.all_of(warp_key, warp_key + Tiling::kWarpKeys)) {
        mask_probabilities(p, Stage::ranges(at) + first, warp_key);
      }
      set_zero(ds);
      multiply_rows<kWidth>(ds, plain, v_rows, crossed, dy_tile);
      MmaLeft<kRows, kQueries / 16> left;
      if constexpr (kDrops) {
        drop_columns(p, left, ds, dropout, keys.batch, head, query + first, warp_key);
      } else {
        pack_left(left, p);
      }
      multiply<kWidth>(dv, left, plain, dy_tile);
      to_score_gradients(ds, p, Stage::delta(at) + first);
      pack_left(left, ds);
      multiply<kWidth>(dk, left, plain, q_tile);
    }
  }
  copy_async_wait<0>();
  const int64_t n_keys = problem.sizes.keys;
  if (call.dk.data) {
    store_rows(call.dk, keys.batch, keys.kv_head, warp_key, n_keys,
               static_cast<float>(problem.scale), dk);
  }
  if (call.dv.data) store_rows(call.dv, keys.batch, keys.kv_head, warp_key, n_keys, 1.0f, dv);
}

// Barriers of the two warps of a pair. 0 is the one of the whole block.
__device__ inline void pair_arrive(int barrier) {
  asm volatile("bar.arrive %0, 64;" ::"r"(barrier + 1) : "memory");
}
__device__ inline void pair_wait(int barrier) {
  asm volatile("bar.sync %0, 64;" ::"r"(barrier + 1) : "memory");
}

// Pairs, keys and queries of the kernel by pairs; kBlocks share a multiprocessor. A stage holds the
// queries of kSteps steps. Where kHold, each warp keeps its rows of k or v in registers.
template <int kHeadDim, int kPairs, int kRowTiles, int kQueries, int kBlocks, bool kLag, bool kHold,
          int kSteps>
struct PairTiling {
  static_assert(kQueryTile % (kQueries * kSteps) == 0);
  static constexpr int kWidth = kHeadDim, kPairCount = kPairs, kRowTileCount = kRowTiles;
  static constexpr int kQueryCount = kQueries, kStepCount = kSteps;
  static constexpr int kThreads = kPairs * 64, kBlocksTogether = kBlocks;
  static constexpr bool kLags = kLag, kHolds = kHold;
  static constexpr int kPairKeys = kRowTiles * 16, kKeyCount = kPairs * kPairKeys;
  // Shared memory: keys, values, the stages, for each step the probabilities of each pair.
  using Stage = QueryStage<kWidth, kQueries * kSteps>;
  static constexpr int kStages = kLags ? 3 : 2;
  static constexpr int kKeyBytes = kKeyCount * kWidth * 2, kStagesAt = 2 * kKeyBytes;
  static constexpr int kExchangeAt = kStagesAt + kStages * Stage::kBytes;
  static constexpr int kExchangeBytes = kPairKeys * kQueries * 2;
  static constexpr int kSharedBytes = kExchangeAt + kSteps * kPairs * kExchangeBytes;
};

// p and its copy for the other warp of the pair, where a set sign says that p was dropped.
template <int kRowTiles, int kColumnTiles>
__device__ void drop(MmaSums<kRowTiles, kColumnTiles>& p,
                     MmaLeft<kRowTiles, kColumnTiles / 2>& signed_p,
                     const AttentionDropout& dropout, int64_t batch, int64_t head, int64_t query,
                     int64_t key) {
  const float factor = static_cast<float>(dropout.kept);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const unsigned kept = kept_of_columns(dropout, batch, head, query + n * 8, key + m * 16);
      float marked[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        marked[i] = kept >> i & 1 ? p[m][n][i] : -p[m][n][i];
        p[m][n][i] *= kept >> i & 1 ? factor : 0.0f;
      }
      signed_p[m][n / 2][n % 2 * 2] = pack_bf16(marked[0], marked[1]);
      signed_p[m][n / 2][n % 2 * 2 + 1] = pack_bf16(marked[2], marked[3]);
    }
  }
}

// Between the two warps of a pair, which hold a tile in the same lanes.
template <int kRowTiles, int kSteps>
__device__ void give(uint4* exchange, const MmaLeft<kRowTiles, kSteps>& p) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      exchange[(m * kSteps + k) * 32 + threadIdx.x % 32] =
          make_uint4(p[m][k][0], p[m][k][1], p[m][k][2], p[m][k][3]);
    }
  }
}

// From dp [keys, queries] and the probabilities of the other warp to ds = p (dp - delta).
template <bool kDrops, int kRowTiles, int kSteps>
__device__ void take_and_multiply(const uint4* exchange, const MmaSums<kRowTiles, 2 * kSteps>& dp,
                                  const float* delta, float kept, MmaLeft<kRowTiles, kSteps>& ds) {
  const int t = threadIdx.x % 4;
  const auto times = [&](float p, float dp, float delta) {
    if constexpr (kDrops) return fabsf(p) * ((signbit(p) ? 0.0f : kept * dp) - delta);
    return p * (dp - delta);
  };
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    float2 d[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      d[i] = *reinterpret_cast<const float2*>(delta + (2 * k + i) * 8 + 2 * t);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const uint4 packed = exchange[(m * kSteps + k) * 32 + threadIdx.x % 32];
      const uint32_t p[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* column = &dp[m][2 * k + i / 2][i % 2 * 2];
        ds[m][k][i] = pack_bf16(times(low_bf16(p[i]), column[0], d[i / 2].x),
                                times(high_bf16(p[i]), column[1], d[i / 2].y));
      }
    }
  }
}

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    key_gradients_by_pairs(const FlashBackward<BFloat16> call, const QueryTerms terms,
                           BlockOrder order) {
  using Stage = typename Tiling::Stage;
  constexpr int kWidth = Tiling::kWidth, kRows = Tiling::kRowTileCount;
  constexpr int kQueries = Tiling::kQueryCount, kThreads = Tiling::kThreads;
  constexpr int kStageQueries = kQueries * Tiling::kStepCount;
  constexpr int kParts = kQueryTile / kStageQueries;  // stages of a tile of queries
  extern __shared__ __align__(128) unsigned char shared[];
  const FlashProblem& problem = call.problem;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int pair = warp % Tiling::kPairCount;
  const bool sums_dk = warp >= Tiling::kPairCount;  // else dv
  const int group = static_cast<int>(problem.sizes.group());
  const KeyTile keys(problem, order, Tiling::kKeyCount);
  const int warp_key = keys.first + pair * Tiling::kPairKeys;
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + Tiling::kKeyBytes;
  keys.template copy_async<kWidth, Tiling::kKeyCount, kThreads>(k_tile, call.k, problem.k);
  keys.template copy_async<kWidth, Tiling::kKeyCount, kThreads>(v_tile, call.v, problem.v);
  copy_async_commit();
  const SeenKeys* seen = terms.seen + int64_t{keys.batch} * terms.tiles;
  VisibleTiles<1> tiles(seen, terms.tiles, keys.first,
                        min(keys.end, keys.first + Tiling::kKeyCount), group);
  int part = 0, stage = 0;
  const auto copy_queries = [&] {
    if (!tiles.at_end()) {
      Stage::template copy_async<kThreads>(k_tile + Tiling::kStagesAt + stage * Stage::kBytes, call,
                                           terms, keys.batch, keys.kv_head * group + tiles.head(),
                                           tiles.query() + part * kStageQueries);
    }
    copy_async_commit();
  };
  copy_queries();

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  if constexpr (Tiling::kHolds) {
    copy_async_wait<1>();
    __syncthreads();  // the keys are there
  }
  const LeftRows<kWidth, kRows, Tiling::kHolds> own_rows(
      plain, (sums_dk ? v_tile : k_tile) + pair * Tiling::kPairKeys * kWidth * 2);
  const float factor = static_cast<float>(problem.scale) * kLog2E;
  DropoutSource dropout_source;
  if constexpr (kDrops) dropout_source = problem.dropout;
  const AttentionDropout dropout(dropout_source);
  MmaSums<kRows, kWidth / 8> sums;
  set_zero(sums);
  MmaLeft<kRows, kQueries / 16> left;
  uint32_t waiting = 0;  // the queries whose ds a warp that sums dk still holds in `left`
  while (!tiles.at_end()) {
    const int64_t head = keys.kv_head * group + tiles.head();
    const int stage_query = tiles.query() + part * kStageQueries;
    if (++part == kParts) {
      part = 0;
      tiles.advance();
    }
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with what is overwritten
    const unsigned char* at = shared + Tiling::kStagesAt + stage * Stage::kBytes;
    stage = stage == Tiling::kStages - 1 ? 0 : stage + 1;
    copy_queries();
    const SeenKeys sees = Stage::seen(at, 0);
#pragma unroll 1
    for (int step = 0; step < Tiling::kStepCount; ++step) {
      const int first = step * kQueries, barrier = step * Tiling::kPairCount + pair;
      const uint32_t q_tile = shared_address(at) + first * kWidth * 2;
      const uint32_t dy_tile = q_tile + Stage::kRowBytes;
      uint4* exchange =
          reinterpret_cast<uint4*>(shared + Tiling::kExchangeAt + barrier * Tiling::kExchangeBytes);
      if (waiting) multiply<kWidth>(sums, left, plain, waiting);
      waiting = 0;
      if (!sees.some_in(warp_key, warp_key + Tiling::kPairKeys)) continue;
      MmaSums<kRows, kQueries / 8> s;
      set_zero(s);
      own_rows.multiply(s, plain, crossed, sums_dk ? dy_tile : q_tile);
      if (sums_dk) {
        pair_wait(barrier);
        take_and_multiply<kDrops>(exchange, s, Stage::delta(at) + first,
                                  static_cast<float>(dropout.kept), left);
        if constexpr (Tiling::kLags) {
          waiting = q_tile;
          continue;
        }
      } else {
        to_probabilities(s, Stage::log2_sum(at) + first, factor);
        if (!sees.all_of(warp_key, warp_key + Tiling::kPairKeys)) {
          mask_probabilities(s, Stage::ranges(at) + first, warp_key);
        }
        if constexpr (kDrops) {
          drop(s, left, dropout, keys.batch, head, stage_query + first, warp_key);
        } else {
          pack_left(left, s);
        }
        give(exchange, left);
        pair_arrive(barrier);
        if constexpr (kDrops) pack_left(left, s);
      }
      multiply<kWidth>(sums, left, plain, sums_dk ? q_tile : dy_tile);
    }
  }
  if (waiting) multiply<kWidth>(sums, left, plain, waiting);
  copy_async_wait<0>();
  const FlashGradient& gradient = sums_dk ? call.dk : call.dv;
  if (gradient.data == nullptr) return;
  store_rows(gradient, keys.batch, keys.kv_head, warp_key, problem.sizes.keys,
             sums_dk ? static_cast<float>(problem.scale) : 1.0f, sums);
}

using KeyKernel = void (*)(FlashBackward<BFloat16>, QueryTerms, BlockOrder);

template <bool kDrops, int... kSizes>
KeyKernel kernel_of(WarpTiling<kSizes...>) {
  return key_gradients_by_warps<WarpTiling<kSizes...>, kDrops>;
}
template <bool kDrops, int kHeadDim, int kPairs, int kRowTiles, int kQueries, int kBlocks,
          bool kLag, bool kHold, int kSteps>
KeyKernel kernel_of(
    PairTiling<kHeadDim, kPairs, kRowTiles, kQueries, kBlocks, kLag, kHold, kSteps>) {
  return key_gradients_by_pairs<
      PairTiling<kHeadDim, kPairs, kRowTiles, kQueries, kBlocks, kLag, kHold, kSteps>, kDrops>;
}

// Calls f(tiling) with the tiling of a head size, which also says by what the kernel works.
template <class F>
void with_key_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(PairTiling<32, 2, 2, 64, 3, true, false, 1>{});
    case 64:
      return f(WarpTiling<64, 4, 2, 32, 2, 2>{});
    case 96:
      return f(PairTiling<96, 2, 2, 64, 2, true, false, 1>{});
    case 128:
      return f(PairTiling<128, 2, 2, 64, 2, false, false, 1>{});
    case 256:
      return f(PairTiling<256, 4, 1, 32, 1, true, false, 1>{});
  }
}

}  // namespace

void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  with_key_tiling(n.head_dim, [&](auto tiling) {
    using Tiling = decltype(tiling);
    const int64_t query_bytes = n.queries * n.head_dim * 4 * n.group();
    const BlockOrder order =
        block_order(n.batch * n.kv_heads, ceil_div(n.keys, Tiling::kKeyCount), query_bytes);
    const LaunchShape shape{dim3(order.blocks()), dim3(Tiling::kThreads), Tiling::kSharedBytes};
    if (call.problem.drops) {
      XT_LAUNCH(cuda, shape, (kernel_of<true>(tiling)), call, terms, order);
    } else {
      XT_LAUNCH(cuda, shape, (kernel_of<false>(tiling)), call, terms, order);
    }
  });
}

int64_t key_gradients_shared_bytes(int64_t head_dim) {
  int64_t bytes = 0;
  with_key_tiling(head_dim, [&](auto tiling) { bytes = decltype(tiling)::kSharedBytes; });
  return bytes;
}

}  // namespace xtrain::flash_mma
