#pragma once
// The key kernel by pairs: two warps own kRowTiles * 16 keys. One computes p and sums dv, the other
// computes ds with the p that it gets from the first through shared memory, and sums dk. So each
// holds one sum, and each tile that it reads from shared memory serves twice as many keys as if
// every warp computed all four products. Where kLags, the second warp adds a tile's product to dk
// only with the next tile: the tensor cores then have work while the first computes exponentials.

#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_key_scores_cuda.h"
#include "ops/attention/flash_mma_key_tiles_cuda.h"

#if defined(__CUDACC__)

namespace xtrain::flash_mma {

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

// A barrier of the two warps of a pair. 0 is the one of the whole block. Racecheck follows a
// barrier of the block only while all of its threads have passed as many barriers: so a warp that
// need not wait does, at no cost that can be measured, and a pair without work passes its barrier
// too.
__device__ inline void pair_sync(int barrier) {
  asm volatile("bar.sync %0, 64;" ::"r"(barrier + 1) : "memory");
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

// A warp's share of a pair: its keys, and the sums of dk or dv.
template <class Tiling, bool kDrops>
class PairedWarp {
  using Stage = typename Tiling::Stage;
  static constexpr int kWidth = Tiling::kWidth, kRows = Tiling::kRowTileCount;
  static constexpr int kQueries = Tiling::kQueryCount;

 public:
  // `first`: of the pair's keys. `own_rows`: of the warp, k for dv and v for dk.
  __device__ PairedWarp(const FlashProblem& problem, int64_t batch, int first, int lane, int pair,
                        bool sums_dk, uint32_t own_rows)
      : batch_(batch),
        first_(first),
        pair_(pair),
        sums_dk_(sums_dk),
        plain_(MatrixLane<kWidth>::plain(lane)),
        crossed_(MatrixLane<kWidth>::crossed(lane)),
        own_rows_(plain_, own_rows),
        factor_(static_cast<float>(problem.scale) * kLog2E),
        dropout_(dropout_of<kDrops>(problem)) {
    set_zero(sums_);
  }

  // Adds the terms of the queries of a step of the stage at `shared` + stage, which are those from
  // `query` on in the sequence.
  __device__ void add_queries(unsigned char* shared, const unsigned char* stage, int step,
                              const SeenKeys& sees, int64_t head, int query) {
    const int first = step * kQueries, barrier = step * Tiling::kPairCount + pair_;
    const uint32_t q_tile = shared_address(stage) + first * kWidth * 2;
    const uint32_t dy_tile = q_tile + Stage::kRowBytes;
    uint4* exchange =
        reinterpret_cast<uint4*>(shared + Tiling::kExchangeAt + barrier * Tiling::kExchangeBytes);
    add_waiting();
    if (!sees.some_in(first_, first_ + Tiling::kPairKeys)) {
      pair_sync(barrier);
      return;
    }
    MmaSums<kRows, kQueries / 8> s;
    set_zero(s);
    own_rows_.multiply(s, plain_, crossed_, sums_dk_ ? dy_tile : q_tile);
    if (sums_dk_) {
      pair_sync(barrier);
      take_and_multiply<kDrops>(exchange, s, Stage::delta(stage) + first,
                                static_cast<float>(dropout_.kept), left_);
      if constexpr (Tiling::kLags) {
        waiting_ = q_tile;
        return;
      }
    } else {
      to_probabilities(s, Stage::log2_sum(stage) + first, factor_);
      if (!sees.all_of(first_, first_ + Tiling::kPairKeys)) {
        mask_probabilities(s, Stage::ranges(stage) + first, first_);
      }
      if constexpr (kDrops) {
        drop(s, left_, dropout_, batch_, head, query + first, first_);
      } else {
        pack_left(left_, s);
      }
      give(exchange, left_);
      pair_sync(barrier);
      if constexpr (kDrops) pack_left(left_, s);
    }
    multiply<kWidth>(sums_, left_, plain_, sums_dk_ ? q_tile : dy_tile);
  }

  __device__ void add_waiting() {
    if (waiting_) multiply<kWidth>(sums_, left_, plain_, waiting_);
    waiting_ = 0;
  }

  __device__ void store(const FlashBackward<BFloat16>& call, int64_t kv_head) const {
    const FlashGradient& gradient = sums_dk_ ? call.dk : call.dv;
    if (gradient.data == nullptr) return;
    store_rows(gradient, batch_, kv_head, first_, call.problem.sizes.keys,
               sums_dk_ ? static_cast<float>(call.problem.scale) : 1.0f, sums_);
  }

 private:
  int64_t batch_;
  int first_, pair_;
  bool sums_dk_;  // else dv
  MatrixLane<kWidth> plain_, crossed_;
  LeftRows<kWidth, kRows, Tiling::kHolds> own_rows_;
  float factor_;
  AttentionDropout dropout_;
  MmaSums<kRows, kWidth / 8> sums_;
  MmaLeft<kRows, kQueries / 16> left_;
  uint32_t waiting_ = 0;  // the queries whose ds a warp that sums dk still holds in left_
};

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    key_gradients_by_pairs(const FlashBackward<BFloat16> call, const QueryTerms terms,
                           BlockOrder order) {
  using Stage = typename Tiling::Stage;
  constexpr int kWidth = Tiling::kWidth, kThreads = Tiling::kThreads;
  constexpr int kStageQueries = Tiling::kQueryCount * Tiling::kStepCount;
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

  if constexpr (Tiling::kHolds) {
    copy_async_wait<1>();
    __syncthreads();  // the keys are there
  }
  PairedWarp<Tiling, kDrops> work(
      problem, keys.batch, warp_key, lane, pair, sums_dk,
      (sums_dk ? v_tile : k_tile) + pair * Tiling::kPairKeys * kWidth * 2);
  while (!tiles.at_end()) {
    const int64_t head = keys.kv_head * group + tiles.head();
    const int query = tiles.query() + part * kStageQueries;
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
      work.add_queries(shared, at, step, sees, head, query);
    }
  }
  work.add_waiting();
  copy_async_wait<0>();
  work.store(call, keys.kv_head);
}

}  // namespace xtrain::flash_mma

#endif
