// Flash attention backward on the tensor cores by mma.sync, in two kernels that share no sum, so
// that the order of every addition is fixed.
//
// The key kernel owns a tile of keys and walks over the tiles of queries that see some of them, in
// all query heads that share the key head. Its warps work in pairs on kRowTiles * 16 keys. One
// warp computes the probabilities p and sums dv, the other computes ds with the p that it gets from
// the first through shared memory, and sums dk:
//
//   p^T = 2^(factor k q^T - log2_sum)      dv += p^T dy
//   ds^T = p^T (v dy^T - delta)            dk += ds^T q
//
// So each holds one sum, and each tile that it reads from shared memory serves twice as many keys
// as if every warp computed all four products. The second warp adds a tile's product to dk only
// with the next tile: the tensor cores then have work while the first computes exponentials.
//
// The query kernel owns a tile of queries and walks over the tiles of keys that they see:
//
//   ds = p (dy v^T - delta)                dq += ds k

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "core/cuda/pack.h"
#include "ops/attention/flash_mma.h"

namespace xtrain {
namespace {

using namespace flash_mma;

// What the kernels need to know of each query, padded to whole tiles of kQueryTile. A padded query
// sees nothing and has log2_sum +infinity, so its p is 0.
inline constexpr int kQueryTile = 64;
struct QueryTerms {
  int tiles;               // of a sequence
  const float* log2_sum;   // [B, H, tiles * kQueryTile]: log_sum in base 2
  const float* delta;      // likewise: dy . o
  const KeyRange* ranges;  // [B, tiles * kQueryTile]
  const SeenKeys* seen;    // [B, tiles]
};

// ranges and seen; a warp a tile.
__global__ void query_ranges(const VisibleKeys visible, int tiles, KeyRange* ranges,
                             SeenKeys* seen) {
  const int batch = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  SeenKeys sees;
  for (int i = threadIdx.x; i < kQueryTile; i += kWarp) {
    const int query = tile * kQueryTile + i;
    KeyRange range;
    if (query < visible.queries) {
      range = visible.of(batch, query);
      sees.add(range);
    }
    ranges[int64_t{blockIdx.x} * kQueryTile + i] = range;
  }
  sees = sees.over_warp();
  if (threadIdx.x == 0) seen[blockIdx.x] = sees;
}

// log2_sum and delta; four lanes a query, a block a tile.
inline constexpr int kTermThreads = 4 * kQueryTile;
__global__ void __launch_bounds__(kTermThreads)
    query_terms(const FlashBackward<BFloat16> call, unsigned tiles, float* log2_sum, float* delta) {
  const AttentionSizes& n = call.problem.sizes;
  const unsigned heads = static_cast<unsigned>(n.heads), head_index = blockIdx.x / tiles;
  const unsigned batch = head_index / heads, head = head_index % heads;
  const int row = threadIdx.x / 4, t = threadIdx.x % 4;
  const int64_t query = int64_t{blockIdx.x % tiles} * kQueryTile + row;
  float dot = 0.0f;
  if (query < n.queries) {
    const int64_t start = ((batch * n.queries + query) * n.heads + head) * n.head_dim;
    for (int64_t d = t * 8; d < n.head_dim; d += 32) {
      const Pack<BFloat16> o = load_pack(call.o + start + d), dy = load_pack(call.dy + start + d);
#pragma unroll
      for (int i = 0; i < 8; ++i) dot += float(o.value[i]) * float(dy.value[i]);
    }
  }
  dot = row_sum(dot);
  if (t != 0) return;
  const int64_t at = int64_t{blockIdx.x} * kQueryTile + row;
  delta[at] = dot;
  log2_sum[at] =
      query < n.queries ? kLog2E * call.log_sum[int64_t{head_index} * n.queries + query] : INFINITY;
}

// Walks over the tiles of queries that see some of the keys [first_key, end_key), in ascending
// order, once for each of `heads` heads. Every lane of a warp must take part.
class VisibleTiles {
 public:
  __device__ VisibleTiles(const SeenKeys* seen, int tiles, int first_key, int end_key, int heads)
      : seen_(seen), tiles_(tiles), first_key_(first_key), end_key_(end_key), heads_(heads) {
    advance();
  }
  __device__ bool at_end() const { return head_ >= heads_; }
  __device__ int head() const { return head_; }
  __device__ int tile() const { return tile_; }

  __device__ void advance() {
    while (waiting_ == 0) {
      chunk_ += kWarp;
      if (chunk_ >= tiles_) {
        // A head that has no tile has none in the others either.
        if (++head_ >= heads_ || !found_) {
          head_ = heads_;
          return;
        }
        chunk_ = 0;
      }
      const int tile = chunk_ + threadIdx.x % kWarp;
      waiting_ =
          __ballot_sync(kAllLanes, tile < tiles_ && seen_[tile].some_in(first_key_, end_key_));
      found_ |= waiting_ != 0;
    }
    tile_ = chunk_ + __ffs(waiting_) - 1;
    waiting_ &= waiting_ - 1;
  }

 private:
  const SeenKeys* seen_;
  int tiles_, first_key_, end_key_, heads_;
  int head_ = 0, chunk_ = -kWarp, tile_ = 0;
  unsigned waiting_ = 0;  // bit i: tile chunk + i is still to come
  bool found_ = false;
};

// Barriers of the two warps of a pair. 0 is the one of the whole block.
__device__ inline void pair_arrive(int pair) {
  asm volatile("bar.arrive %0, 64;" ::"r"(pair + 1) : "memory");
}
__device__ inline void pair_wait(int pair) {
  asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
}

template <int kHeadDim, int kPairs, int kRowTiles, int kQueries, int kBlocks>
struct KeyTiling {
  static_assert(kQueryTile % kQueries == 0);
  static constexpr int kWidth = kHeadDim, kPairCount = kPairs, kRowTileCount = kRowTiles;
  static constexpr int kQueryCount = kQueries, kThreads = kPairs * 64, kBlocksTogether = kBlocks;
  static constexpr int kPairKeys = kRowTiles * 16, kKeyCount = kPairs * kPairKeys, kStages = 3;
  // Shared memory: keys, values, the stages, probabilities of each pair. A stage: queries, dy,
  // log2_sum, delta, ranges.
  static constexpr int kKeyBytes = kKeyCount * kWidth * 2, kQueryBytes = kQueries * kWidth * 2;
  static constexpr int kTermsAt = 2 * kQueryBytes, kStageBytes = kTermsAt + kQueries * 16;
  static constexpr int kStagesAt = 2 * kKeyBytes, kExchangeAt = kStagesAt + kStages * kStageBytes;
  static constexpr int kExchangeBytes = kPairKeys * kQueries * 2;
  static constexpr int kSharedBytes = kExchangeAt + kPairs * kExchangeBytes;
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
    key_gradients_mma(const FlashBackward<BFloat16> call, const QueryTerms terms,
                      unsigned key_tiles) {
  constexpr int kWidth = Tiling::kWidth, kRows = Tiling::kRowTileCount;
  constexpr int kQueries = Tiling::kQueryCount, kThreads = Tiling::kThreads;
  constexpr int kParts = kQueryTile / kQueries;  // steps of a tile of queries
  extern __shared__ __align__(128) unsigned char shared[];
  const FlashProblem& problem = call.problem;
  const AttentionSizes& n = problem.sizes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int pair = warp % Tiling::kPairCount;
  const bool sums_dk = warp >= Tiling::kPairCount;  // else dv

  // The first keys of a causal mask are seen by most and come first.
  const unsigned kv_heads = static_cast<unsigned>(n.kv_heads), head_index = blockIdx.x / key_tiles;
  const unsigned batch = head_index / kv_heads, kv_head = head_index % kv_heads;
  const int group = static_cast<int>(n.group());
  const int block_key = blockIdx.x % key_tiles * Tiling::kKeyCount;
  const int warp_key = block_key + pair * Tiling::kPairKeys;
  const int key_end = min(static_cast<int>(n.keys), problem.visible.key_length[batch]);

  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + Tiling::kKeyBytes;
  copy_rows_async<kWidth, Tiling::kKeyCount, kThreads>(
      k_tile,
      call.k + batch * problem.k.batch + kv_head * problem.k.head + block_key * problem.k.time,
      problem.k.time, 0, key_end - block_key);
  copy_rows_async<kWidth, Tiling::kKeyCount, kThreads>(
      v_tile,
      call.v + batch * problem.v.batch + kv_head * problem.v.head + block_key * problem.v.time,
      problem.v.time, 0, key_end - block_key);

  const auto copy_queries = [&](int head, int tile, int part, int stage) {
    const int query = tile * kQueryTile + part * kQueries;
    const int queries = static_cast<int>(n.queries) - query;
    const uint32_t q_tile = k_tile + Tiling::kStagesAt + stage * Tiling::kStageBytes;
    const int64_t all_heads = kv_head * group + head;
    copy_rows_async<kWidth, kQueries, kThreads>(
        q_tile,
        call.q + batch * problem.q.batch + all_heads * problem.q.head + query * problem.q.time,
        problem.q.time, 0, queries);
    copy_rows_async<kWidth, kQueries, kThreads>(
        q_tile + Tiling::kQueryBytes,
        call.dy + ((batch * n.queries + query) * n.heads + all_heads) * kWidth, n.heads * kWidth, 0,
        queries);
    const int64_t row = int64_t{terms.tiles} * kQueryTile,
                  at = (batch * n.heads + all_heads) * row + query;
    const int i = threadIdx.x;
    if (i < kQueries) {
      const void* from = i < kQueries / 4 ? static_cast<const void*>(terms.log2_sum + at + i * 4)
                         : i < kQueries / 2
                             ? terms.delta + at + (i - kQueries / 4) * 4
                             : static_cast<const void*>(terms.ranges + batch * row + query +
                                                        (i - kQueries / 2) * 2);
      copy_async(q_tile + Tiling::kTermsAt + i * 16, from);
    }
  };

  const SeenKeys* seen = terms.seen + int64_t{batch} * terms.tiles;
  VisibleTiles tiles(seen, terms.tiles, block_key, min(key_end, block_key + Tiling::kKeyCount),
                     group);
  if (!tiles.at_end()) copy_queries(tiles.head(), tiles.tile(), 0, 0);
  copy_async_commit();

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  const uint32_t own_rows = (sums_dk ? v_tile : k_tile) + pair * Tiling::kPairKeys * kWidth * 2;
  uint4* exchange =
      reinterpret_cast<uint4*>(shared + Tiling::kExchangeAt + pair * Tiling::kExchangeBytes);
  const float factor = static_cast<float>(problem.scale) * kLog2E;
  DropoutSource dropout_source;
  if constexpr (kDrops) dropout_source = problem.dropout;
  const AttentionDropout dropout(dropout_source);
  MmaSums<kRows, kWidth / 8> sums;
  set_zero(sums);
  MmaLeft<kRows, kQueries / 16> left;
  int part = 0, stage = 0;
  uint32_t waiting = 0;  // the queries whose ds a warp that sums dk still holds in `left`
  while (!tiles.at_end()) {
    const int head = tiles.head(), tile = tiles.tile(), query = tile * kQueryTile + part * kQueries;
    if (++part == kParts) {
      part = 0;
      tiles.advance();
    }
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with what is overwritten
    const unsigned char* at = shared + Tiling::kStagesAt + stage * Tiling::kStageBytes;
    stage = stage == Tiling::kStages - 1 ? 0 : stage + 1;
    if (!tiles.at_end()) copy_queries(tiles.head(), tiles.tile(), part, stage);
    copy_async_commit();
    const SeenKeys sees = seen[tile];
    const uint32_t q_tile = shared_address(at), dy_tile = q_tile + Tiling::kQueryBytes;
    const float* log2_sum = reinterpret_cast<const float*>(at + Tiling::kTermsAt);
    if (waiting) multiply<kWidth>(sums, left, plain, waiting);
    waiting = 0;
    if (!sees.some_in(warp_key, warp_key + Tiling::kPairKeys)) continue;
    MmaSums<kRows, kQueries / 8> s;
    set_zero(s);
    multiply_rows<kWidth>(s, plain, own_rows, crossed, sums_dk ? dy_tile : q_tile);
    if (sums_dk) {
      pair_wait(pair);
      take_and_multiply<kDrops>(exchange, s, log2_sum + kQueries, static_cast<float>(dropout.kept),
                                left);
      waiting = q_tile;
      continue;
    }
    to_probabilities(s, log2_sum, factor);
    if (!sees.all_of(warp_key, warp_key + Tiling::kPairKeys)) {
      mask_probabilities(s, reinterpret_cast<const KeyRange*>(log2_sum + 2 * kQueries), warp_key);
    }
    if constexpr (kDrops) drop(s, left, dropout, batch, kv_head * group + head, query, warp_key);
    if constexpr (!kDrops) pack_left(left, s);
    give(exchange, left);
    pair_arrive(pair);
    if constexpr (kDrops) pack_left(left, s);
    multiply<kWidth>(sums, left, plain, dy_tile);
  }
  if (waiting) multiply<kWidth>(sums, left, plain, waiting);
  copy_async_wait<0>();
  const FlashGradient& gradient = sums_dk ? call.dk : call.dv;
  if (gradient.data == nullptr) return;
  store_rows(gradient, batch, kv_head, warp_key, n.keys,
             sums_dk ? static_cast<float>(problem.scale) : 1.0f, sums);
}

template <int kHeadDim, int kWarps, int kRowTiles, int kKeys, int kBlocks>
struct QueryTiling {
  static constexpr int kWidth = kHeadDim, kRowTileCount = kRowTiles, kKeyCount = kKeys;
  static constexpr int kThreads = kWarps * 32, kBlocksTogether = kBlocks;
  static constexpr int kWarpQueries = kRowTiles * 16, kQueryCount = kWarps * kWarpQueries;
  // Shared memory: queries, dy, two stages of keys and values, ranges of the queries.
  static constexpr int kQueryBytes = kQueryCount * kWidth * 2, kKeyBytes = kKeyCount * kWidth * 2;
  static constexpr int kStagesAt = 2 * kQueryBytes, kStageBytes = 2 * kKeyBytes;
  static constexpr int kRangesAt = kStagesAt + 2 * kStageBytes;
  static constexpr int kSharedBytes = kRangesAt + kQueryCount * static_cast<int>(sizeof(KeyRange));
};

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    query_gradients_mma(const FlashBackward<BFloat16> call, const QueryTerms terms,
                        unsigned query_tiles) {
  constexpr int kWidth = Tiling::kWidth, kKeys = Tiling::kKeyCount, kRows = Tiling::kRowTileCount;
  constexpr int kThreads = Tiling::kThreads;
  extern __shared__ __align__(128) unsigned char shared[];
  KeyRange* ranges = reinterpret_cast<KeyRange*>(shared + Tiling::kRangesAt);
  const FlashProblem& problem = call.problem;
  const AttentionSizes& n = problem.sizes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // The last tile of a causal mask sees most and comes first.
  const unsigned heads = static_cast<unsigned>(n.heads), head_index = blockIdx.x / query_tiles;
  const unsigned batch = head_index / heads, head = head_index % heads;
  const unsigned kv_head = head / static_cast<unsigned>(n.group());
  const int block_query = (query_tiles - 1 - blockIdx.x % query_tiles) * Tiling::kQueryCount;
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

  for (int i = threadIdx.x; i < Tiling::kQueryCount; i += kThreads) {
    ranges[i] = i < queries ? problem.visible.of(batch, block_query + i) : KeyRange{};
  }
  __syncthreads();
  SeenKeys block_sees, warp_sees;
  const int warp_row = warp * Tiling::kWarpQueries;
  for (int i = lane; i < queries; i += 32) block_sees.add(ranges[i]);
  for (int i = lane; i < Tiling::kWarpQueries && warp_row + i < queries; i += 32) {
    warp_sees.add(ranges[warp_row + i]);
  }
  block_sees = block_sees.over_warp();
  warp_sees = warp_sees.over_warp();

  const BFloat16* k_head = call.k + batch * problem.k.batch + kv_head * problem.k.head;
  const BFloat16* v_head = call.v + batch * problem.v.batch + kv_head * problem.v.head;
  const auto copy_keys = [&](int key, int stage) {
    const uint32_t k_tile = stages + stage * Tiling::kStageBytes;
    const int first = block_sees.any_first - key, end = block_sees.any_end - key;
    copy_rows_async<kWidth, kKeys, kThreads>(k_tile, k_head + key * problem.k.time, problem.k.time,
                                             first, end);
    copy_rows_async<kWidth, kKeys, kThreads>(
        k_tile + Tiling::kKeyBytes, v_head + key * problem.v.time, problem.v.time, first, end);
  };
  const int end_key = block_sees.any_end;
  int key = block_sees.any_first / kKeys * kKeys, stage = 0;
  if (key < end_key) copy_keys(key, 0);
  copy_async_commit();

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  const uint32_t q_rows = q_tile + warp_row * kWidth * 2, dy_rows = dy_tile + warp_row * kWidth * 2;
  const float factor = static_cast<float>(problem.scale) * kLog2E;
  float log2_sum[kRows][2], delta[kRows][2];
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = warp_row + m * 16 + h * 8 + lane / 4;
      const int64_t at = int64_t{head_index} * terms.tiles * kQueryTile + block_query + row;
      log2_sum[m][h] = row < queries ? terms.log2_sum[at] : INFINITY;
      delta[m][h] = row < queries ? terms.delta[at] : 0.0f;
    }
  }
  DropoutSource dropout_source;
  if constexpr (kDrops) dropout_source = problem.dropout;
  const AttentionDropout dropout(dropout_source);
  MmaSums<kRows, kWidth / 8> dq;
  set_zero(dq);
  for (; key < end_key; key += kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with the one before
    if (key + kKeys < end_key) copy_keys(key + kKeys, stage ^ 1);
    copy_async_commit();
    if (!warp_sees.some_in(key, key + kKeys)) continue;
    const uint32_t k_tile = stages + stage * Tiling::kStageBytes;
    MmaSums<kRows, kKeys / 8> p, ds;
    set_zero(p);
    multiply_rows<kWidth>(p, plain, q_rows, crossed, k_tile);
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < kKeys / 8 * 4; ++i) {
        float& x = p[m][i / 4][i % 4];
        x = exp2_approximate(x * factor - log2_sum[m][i % 4 / 2]);
      }
    }
    set_zero(ds);
    multiply_rows<kWidth>(ds, plain, dy_rows, crossed, k_tile + Tiling::kKeyBytes);
    if (!warp_sees.all_of(key, key + kKeys)) mask_rows(p, ranges + warp_row, key, 0.0f);
    if constexpr (kDrops) {
      drop_rows(ds, dropout, batch, head, block_query + warp_row, key);
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < kKeys / 8 * 4; ++i) {
        float& x = ds[m][i / 4][i % 4];
        x = p[m][i / 4][i % 4] * (x - delta[m][i % 4 / 2]);
      }
    }
    MmaLeft<kRows, kKeys / 16> left;
    pack_left(left, ds);
    multiply<kWidth>(dq, left, plain, k_tile);
  }
  store_rows(call.dq, batch, head, block_query + warp_row, n.queries,
             static_cast<float>(problem.scale), dq);
}

// What the terms lie in.
struct TermsMemory {
  Tensor log2_sum, delta, ranges, seen;
};

QueryTerms compute_terms(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                         TermsMemory& memory) {
  const AttentionSizes& n = call.problem.sizes;
  const int64_t tiles = ceil_div(n.queries, kQueryTile), padded = tiles * kQueryTile;
  memory.log2_sum = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  memory.delta = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  memory.ranges = empty(cuda.ctx, {n.batch, padded, sizeof(KeyRange) / 4}, Dtype::i32);
  memory.seen = empty(cuda.ctx, {n.batch, tiles, sizeof(SeenKeys) / 4}, Dtype::i32);
  float* log2_sum = memory.log2_sum.mutable_data<float>();
  float* delta = memory.delta.mutable_data<float>();
  auto* ranges = reinterpret_cast<KeyRange*>(memory.ranges.mutable_data<int32_t>());
  auto* seen = reinterpret_cast<SeenKeys*>(memory.seen.mutable_data<int32_t>());
  const unsigned sequences = static_cast<unsigned>(n.batch * tiles);
  XT_LAUNCH(cuda, (LaunchShape{dim3(sequences), dim3(kWarp)}), query_ranges, call.problem.visible,
            static_cast<int>(tiles), ranges, seen);
  XT_LAUNCH(cuda,
            (LaunchShape{dim3(sequences * static_cast<unsigned>(n.heads)), dim3(kTermThreads)}),
            query_terms, call, static_cast<unsigned>(tiles), log2_sum, delta);
  return QueryTerms{static_cast<int>(tiles), log2_sum, delta, ranges, seen};
}

template <class Tiling>
void launch_key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                          const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  const unsigned tiles = static_cast<unsigned>(ceil_div(n.keys, Tiling::kKeyCount));
  const LaunchShape shape{dim3(static_cast<unsigned>(n.batch * n.kv_heads) * tiles),
                          dim3(Tiling::kThreads), Tiling::kSharedBytes};
  if (call.problem.drops) {
    XT_LAUNCH(cuda, shape, (key_gradients_mma<Tiling, true>), call, terms, tiles);
  } else {
    XT_LAUNCH(cuda, shape, (key_gradients_mma<Tiling, false>), call, terms, tiles);
  }
}

template <class Tiling>
void launch_query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                            const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  const unsigned tiles = static_cast<unsigned>(ceil_div(n.queries, Tiling::kQueryCount));
  const LaunchShape shape{dim3(static_cast<unsigned>(n.batch * n.heads) * tiles),
                          dim3(Tiling::kThreads), Tiling::kSharedBytes};
  if (call.problem.drops) {
    XT_LAUNCH(cuda, shape, (query_gradients_mma<Tiling, true>), call, terms, tiles);
  } else {
    XT_LAUNCH(cuda, shape, (query_gradients_mma<Tiling, false>), call, terms, tiles);
  }
}

template <class Keys, class Queries>
struct BackwardTiling {
  using KeyKernel = Keys;
  using QueryKernel = Queries;
};

// Calls f(tiling) with the tilings of a head size.
template <class F>
bool with_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(BackwardTiling<KeyTiling<32, 2, 2, 64, 3>, QueryTiling<32, 4, 2, 32, 3>>{});
    case 64:
      return f(BackwardTiling<KeyTiling<64, 2, 2, 64, 2>, QueryTiling<64, 4, 2, 32, 3>>{});
    case 96:
      return f(BackwardTiling<KeyTiling<96, 2, 2, 64, 2>, QueryTiling<96, 4, 2, 32, 2>>{});
    case 128:
      return f(BackwardTiling<KeyTiling<128, 4, 2, 64, 1>, QueryTiling<128, 4, 2, 32, 2>>{});
    case 256:
      return f(BackwardTiling<KeyTiling<256, 4, 1, 32, 1>, QueryTiling<256, 8, 1, 32, 1>>{});
  }
  return false;
}

}  // namespace

bool mma_supports(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  const GpuProperties& gpu = gpu_of(cuda);
  return gpu.compute_capability >= 80 && sizes_fit(call.problem.sizes) &&
         inputs_are_aligned(call.problem, call.q, call.k, call.v) &&
         reinterpret_cast<uintptr_t>(call.o) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(call.dy) % 16 == 0 &&
         with_tiling(call.problem.sizes.head_dim, [&](auto tiling) {
           using Tiling = decltype(tiling);
           return std::max(Tiling::KeyKernel::kSharedBytes, Tiling::QueryKernel::kSharedBytes) <=
                  gpu.shared_bytes_per_block;
         });
}

void mma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  TermsMemory memory;
  const QueryTerms terms = compute_terms(cuda, call, memory);
  with_tiling(call.problem.sizes.head_dim, [&](auto tiling) {
    using Tiling = decltype(tiling);
    if (call.dk.data || call.dv.data) {
      launch_key_gradients<typename Tiling::KeyKernel>(cuda, call, terms);
    }
    if (call.dq.data) launch_query_gradients<typename Tiling::QueryKernel>(cuda, call, terms);
    return true;
  });
}

}  // namespace xtrain
