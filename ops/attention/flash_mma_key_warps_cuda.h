#pragma once
// The key kernel by warps: each warp owns kRowTiles * 16 keys and sums both dv and dk. For small
// heads, where both sums fit into registers.

#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_key_scores_cuda.h"
#include "ops/attention/flash_mma_key_tiles_cuda.h"

#if defined(__CUDACC__)

namespace xtrain::flash_mma {

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

// A warp's keys and the sums of their gradients.
template <class Tiling, bool kDrops>
class WarpKeys {
  using Stage = typename Tiling::Stage;
  static constexpr int kWidth = Tiling::kWidth, kRows = Tiling::kRowTileCount;
  static constexpr int kQueries = Tiling::kQueryCount;

 public:
  // `k_tile`: of the block, with its values behind. `first`: of the warp's keys.
  __device__ WarpKeys(const FlashProblem& problem, int64_t batch, int first, int lane, int warp,
                      uint32_t k_tile)
      : batch_(batch),
        first_(first),
        plain_(MatrixLane<kWidth>::plain(lane)),
        crossed_(MatrixLane<kWidth>::crossed(lane)),
        k_rows_(k_tile + warp * Tiling::kWarpKeys * kWidth * 2),
        v_rows_(k_rows_ + Tiling::kKeyBytes),
        factor_(static_cast<float>(problem.scale) * kLog2E),
        dropout_(dropout_of<kDrops>(problem)) {
    set_zero(dk_);
    set_zero(dv_);
  }

  // Adds the terms of the kQueries queries from place `first` of a stage on, which are those from
  // `query` on in the sequence.
  __device__ void add_queries(const unsigned char* stage, int first, int64_t head, int query) {
    const SeenKeys sees = Stage::seen(stage, first / kQueryTile);
    if (!sees.some_in(first_, first_ + Tiling::kWarpKeys)) return;
    const uint32_t q_tile = shared_address(stage) + first * kWidth * 2;
    const uint32_t dy_tile = q_tile + Stage::kRowBytes;
    MmaSums<kRows, kQueries / 8> p, ds;
    set_zero(p);
    multiply_rows<kWidth>(p, plain_, k_rows_, crossed_, q_tile);
    to_probabilities(p, Stage::log2_sum(stage) + first, factor_);
    if (!sees.all_of(first_, first_ + Tiling::kWarpKeys)) {
      mask_probabilities(p, Stage::ranges(stage) + first, first_);
    }
    set_zero(ds);
    multiply_rows<kWidth>(ds, plain_, v_rows_, crossed_, dy_tile);
    MmaLeft<kRows, kQueries / 16> left;
    if constexpr (kDrops) {
      drop_columns(p, left, ds, dropout_, batch_, head, query, first_);
    } else {
      pack_left(left, p);
    }
    multiply<kWidth>(dv_, left, plain_, dy_tile);
    to_score_gradients(ds, p, Stage::delta(stage) + first);
    pack_left(left, ds);
    multiply<kWidth>(dk_, left, plain_, q_tile);
  }

  __device__ void store(const FlashBackward<BFloat16>& call, int64_t kv_head) const {
    const int64_t n_keys = call.problem.sizes.keys;
    if (call.dk.data) {
      store_rows(call.dk, batch_, kv_head, first_, n_keys, static_cast<float>(call.problem.scale),
                 dk_);
    }
    if (call.dv.data) store_rows(call.dv, batch_, kv_head, first_, n_keys, 1.0f, dv_);
  }

 private:
  int64_t batch_;
  int first_;
  MatrixLane<kWidth> plain_, crossed_;
  uint32_t k_rows_, v_rows_;
  float factor_;
  AttentionDropout dropout_;
  MmaSums<kRows, kWidth / 8> dk_, dv_;
};

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    key_gradients_by_warps(const FlashBackward<BFloat16> call, const QueryTerms terms,
                           BlockOrder order) {
  using Stage = typename Tiling::Stage;
  constexpr int kWidth = Tiling::kWidth, kThreads = Tiling::kThreads;
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

  WarpKeys<Tiling, kDrops> work(problem, keys.batch, warp_key, lane, warp, k_tile);
  for (int stage = 0; !tiles.at_end(); stage ^= 1) {
    const int64_t head = keys.kv_head * group + tiles.head();
    const int query = tiles.query();
    tiles.advance();
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with the one before
    copy_queries(stage ^ 1);
    const unsigned char* at = shared + Tiling::kStagesAt + stage * Stage::kBytes;
#pragma unroll 1
    for (int first = 0; first < Tiling::kGroup * kQueryTile; first += Tiling::kQueryCount) {
      work.add_queries(at, first, head, query + first);
    }
  }
  copy_async_wait<0>();
  work.store(call, keys.kv_head);
}

}  // namespace xtrain::flash_mma

#endif
