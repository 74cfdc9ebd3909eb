// The key kernel of the backward pass of flash attention by wgmma. A block is one producer and
// several consumer warpgroups, and works through tiles of keys until none is left. For each it
// walks over the tiles of queries that see some of the keys, in all query heads of one share of
// those that have the key head. A consumer owns 64 keys; its scores and both sums stay in its
// registers:
//
//   s^T = k q^T, dp^T = v dy^T         all four in shared memory
//   p^T = 2^(factor s^T - log2_sum)
//   ds^T = p^T (dp^T - delta)
//   dv += p^T dy, dk += ds^T q         p and ds rounded to bf16 in registers
//
// Keys are the rows of every product, so that p^T and ds^T are left operands just as they come, and
// q and dy serve once by their rows and once by their columns from one copy.

#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/tma.h"
#include "core/cuda/hopper/warpgroup.h"
#include "core/cuda/hopper/wgmma.h"
#include "core/cuda/launch.h"
#include "ops/attention/flash_wgmma_backward_cuda.h"

namespace xtrain::flash_wgmma {
namespace {

using flash_mma::kAllLanes;
constexpr int kRows = 64;  // keys of a consumer

// kPartCount consumers share 64 keys: each computes their scores, and sums one part of the columns
// of dk and dv. Stages: of tiles of queries, and of keys. kOverlap: see sum_overlapping.
template <int kHeadDim, int kConsumerCount, int kQueryCount, int kStageCount, int kKeyStageCount,
          int kPartCount = 1, bool kOverlap = true>
struct KeyTiling {
  static constexpr int kWidth = kHeadDim, kConsumers = kConsumerCount, kQueries = kQueryCount;
  static constexpr int kStages = kStageCount, kKeyStages = kKeyStageCount, kParts = kPartCount;
  static constexpr int kKeys = kConsumers / kParts * kRows, kColumns = kWidth / kParts;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kOverlaps = kOverlap;
  // They come in eights, and all together are as many as the kernel begins with: 168 a thread where
  // there are three warpgroups, 128 where there are four.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;

  using KeyRows = SwizzledTile<kKeys, kWidth>;       // or values
  using QueryRows = SwizzledTile<kQueries, kWidth>;  // or dy
  static_assert(kQueryPadding % kQueries == 0);

  // Dynamic shared memory, from a multiple of 1024 on.
  static constexpr int kStagesAt = kKeyStages * 2 * KeyRows::kBytes;
  static constexpr int kSharedBytes = 1024 + kStagesAt + kStages * 2 * QueryRows::kBytes;
};

struct KeyArguments {
  CUtensorMap q, k, v, dy;
  TileOrder order;
  Tickets tickets;  // for tiles; each block begins with the one of its own number
  QueryTerms terms;
  const int32_t* key_length;  // [B]
  int heads, keys;
  int shares, sums;  // of a key head, of a sequence
  float scale;
  FlashGradient dk, dv;
};

// A tile of keys, as the producer describes it to the consumers.
struct KeyWork {
  int batch, head, key;
  int strangers;  // of the tile's last keys, that are not the sequence's; 0 where none of them
                  // exist
  bool is_seen;   // by some query
  bool ends;      // there is no more work
};

// What the consumers need to know of a tile of queries.
template <int kQueries>
struct alignas(16) QueryStage {
  float log2_sum[kQueries], delta[kQueries];
  KeyRange ranges[kQueries];
  SeenKeys seen;
  int is_last;  // for this tile of keys
};

// Static shared memory: how producer and consumers talk.
template <class Tiling>
struct Control {
  QueryStage<Tiling::kQueries> stages[Tiling::kStages];
  uint64_t keys[2 * Tiling::kKeyStages], queries[2 * Tiling::kStages];
  KeyWork work[Tiling::kKeyStages];
};

// Where a block keeps what. Tiles of keys are counted by rounds, tiles of queries through all
// rounds; a count says which stage of a ring holds a tile.
template <class Tiling>
class Memory {
 public:
  using KeyRing = StageRing<Tiling::kKeyStages>;
  using QueryRing = StageRing<Tiling::kStages>;

  __device__ Memory(unsigned char* shared, Control<Tiling>& control)
      : tiles_((shared_address(shared) + 1023) & ~1023u), control_(control) {}

  __device__ uint32_t keys(uint32_t round) const {
    return tiles_ + KeyRing::stage_of(round) * 2 * Tiling::KeyRows::kBytes;
  }
  __device__ uint32_t values(uint32_t round) const { return keys(round) + Tiling::KeyRows::kBytes; }
  __device__ uint32_t queries(uint32_t count) const {
    return tiles_ + Tiling::kStagesAt + QueryRing::stage_of(count) * 2 * Tiling::QueryRows::kBytes;
  }
  __device__ uint32_t dy(uint32_t count) const {
    return queries(count) + Tiling::QueryRows::kBytes;
  }
  __device__ QueryStage<Tiling::kQueries>& stage(uint32_t count) const {
    return control_.stages[QueryRing::stage_of(count)];
  }
  __device__ KeyWork& work(uint32_t round) const { return control_.work[KeyRing::stage_of(round)]; }
  __device__ KeyRing key_ring() const { return KeyRing(shared_address(control_.keys)); }
  __device__ QueryRing query_ring() const { return QueryRing(shared_address(control_.queries)); }

  // By one thread.
  __device__ void init() const {
    key_ring().init(Tiling::kConsumers * 4);  // warps
    query_ring().init(Tiling::kConsumers * 4);
    mbarrier_init_done();
  }

 private:
  uint32_t tiles_;
  Control<Tiling>& control_;
};

// The producer: one warp, of which one lane talks to the copy engine.
template <class Tiling>
class Producer {
  static constexpr int kQueries = Tiling::kQueries;

 public:
  __device__ Producer(const KeyArguments& a, const Memory<Tiling>& memory)
      : a_(a), memory_(memory) {}

  __device__ void run() {
    if (lane_ == 0) {
      for (const CUtensorMap* map : {&a_.q, &a_.k, &a_.v, &a_.dy}) prefetch_map(*map);
    }
    uint32_t round = 0;
    for (int index = blockIdx.x; index < a_.order.count(); index = next(), ++round) {
      feed(tile_of(index), round);
    }
    memory_.key_ring().wait_empty(round);
    if (lane_ != 0) return;
    a_.tickets.finish();
    memory_.work(round).ends = true;
    memory_.key_ring().full(round).arrive();
  }

 private:
  struct KeyTile {
    int batch, head, key;  // head: of sums
  };

  // The first keys are seen by most queries of a causal mask; begun first, they leave short tiles
  // for the end.
  __device__ KeyTile tile_of(int index) const {
    const TileOrder::Place place = a_.order.at(index);
    const int batch = place.head / a_.sums;
    return KeyTile{batch, place.head - batch * a_.sums,
                   (a_.order.tiles_of_head - 1 - place.tile) * Tiling::kKeys};
  }
  __device__ int next() const {
    const int index = lane_ == 0 ? a_.tickets.draw() : 0;
    return static_cast<int>(gridDim.x) + __shfl_sync(kAllLanes, index, 0);
  }

  __device__ void feed(const KeyTile& keys, uint32_t round) {
    const int group = a_.heads / a_.sums, last = last_tile(keys);
    if (last < 0) return load_keys(keys, round, false);
    bool has_keys = false;
#pragma unroll 1
    for (int head = keys.head * group; head < (keys.head + 1) * group; ++head) {
#pragma unroll 1
      for (int tile = 0; tile <= last; tile += 32) {
        unsigned waiting = seeing_tiles(keys, tile);
#pragma unroll 1
        for (; waiting != 0; waiting &= waiting - 1, ++count_) {
          memory_.query_ring().wait_empty(count_);
          const int at = tile + __ffs(waiting) - 1;
          const bool is_last = at == last && head + 1 == (keys.head + 1) * group;
          if (lane_ == 0) load_queries(keys.batch, head, at, is_last);
          // Behind the first queries, since the room for them becomes free earlier.
          if (!has_keys) load_keys(keys, round, true);
          has_keys = true;
        }
      }
    }
  }

  // Which of the tiles of queries tile .. tile + 31 see some of the keys, as bits.
  __device__ unsigned seeing_tiles(const KeyTile& keys, int tile) const {
    const SeenKeys seen = seen_of(keys.batch, tile + lane_);
    return __ballot_sync(kAllLanes, seen.some_in(keys.key, keys.key + Tiling::kKeys));
  }
  // The last one that does; -1: none.
  __device__ int last_tile(const KeyTile& keys) const {
    int last = -1;
#pragma unroll 1
    for (int tile = 0; tile < a_.terms.padded / kQueries; tile += 32) {
      const unsigned seeing = seeing_tiles(keys, tile);
      if (seeing != 0) last = tile + 31 - __clz(seeing);
    }
    return last;
  }
  __device__ SeenKeys seen_of(int batch, int tile) const {
    SeenKeys seen;
    const int end = min((tile + 1) * kQueries, a_.terms.padded);
#pragma unroll 1
    for (int query = tile * kQueries / kSeenQueries * kSeenQueries; query < end;
         query += kSeenQueries) {
      seen.add(a_.terms.seen[(int64_t{batch} * a_.terms.padded + query) / kSeenQueries]);
    }
    return seen;
  }

  __device__ void load_queries(int batch, int head, int tile, bool is_last) {
    constexpr int kTermBytes = kQueries * sizeof(float);
    constexpr int kRangeBytes = kQueries * sizeof(KeyRange);
    const int query = tile * kQueries;
    auto& stage = memory_.stage(count_);
    stage.seen = seen_of(batch, tile);
    stage.is_last = is_last;
    const Mbarrier full = memory_.query_ring().full(count_);
    full.arrive_expecting(2 * Tiling::QueryRows::kBytes + 2 * kTermBytes + kRangeBytes);
    load_tile(memory_.queries(count_), a_.q, batch, head, query, full);
    load_tile(memory_.dy(count_), a_.dy, batch, head, query, full);
    const int64_t of_batch = int64_t{batch} * a_.terms.padded + query;
    const int64_t of_head = (int64_t{batch} * a_.heads + head) * a_.terms.padded + query;
    load_bytes(shared_address(stage.log2_sum), a_.terms.log2_sum + of_head, kTermBytes, full);
    load_bytes(shared_address(stage.delta), a_.terms.delta + of_head, kTermBytes, full);
    load_bytes(shared_address(stage.ranges), a_.terms.ranges + of_batch, kRangeBytes, full);
  }

  __device__ void load_keys(const KeyTile& keys, uint32_t round, bool is_seen) {
    memory_.key_ring().wait_empty(round);
    if (lane_ != 0) return;
    const int length = min(a_.key_length[keys.batch], a_.keys);
    const int end = min(keys.key + Tiling::kKeys, a_.keys);
    const int strangers = length < end ? min(Tiling::kKeys, keys.key + Tiling::kKeys - length) : 0;
    memory_.work(round) = KeyWork{keys.batch, keys.head, keys.key, strangers, is_seen, false};
    const Mbarrier full = memory_.key_ring().full(round);
    full.arrive_expecting(2 * Tiling::KeyRows::kBytes);
    const int head = keys.head / a_.shares;
    load_tile(memory_.keys(round), a_.k, keys.batch, head, keys.key, full);
    load_tile(memory_.values(round), a_.v, keys.batch, head, keys.key, full);
  }

  const KeyArguments& a_;
  const Memory<Tiling> memory_;
  const int lane_ = threadIdx.x % 32;
  uint32_t count_ = 0;  // of tiles of queries
};

// s^T [keys, queries] becomes p^T.
template <int kColumns>
__device__ __forceinline__ void to_probabilities(WgmmaSums<kColumns>& s, const float* log2_sum,
                                                 float factor) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const float2 sum = *reinterpret_cast<const float2*>(log2_sum + j * 8 + threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s.value[4 * j + i];
      x = probability(x, factor, i % 2 == 0 ? sum.x : sum.y);
    }
  }
}

// dp^T [keys, queries] becomes ds^T = p^T (dp^T - delta).
template <int kColumns>
__device__ __forceinline__ void to_score_gradients(WgmmaSums<kColumns>& dp,
                                                   const WgmmaSums<kColumns>& p,
                                                   const float* delta) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const float2 d = *reinterpret_cast<const float2*>(delta + j * 8 + threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = dp.value[4 * j + i];
      x = p.value[4 * j + i] * (x - (i % 2 == 0 ? d.x : d.y));
    }
  }
}

// s^T [keys, queries] becomes -infinity where a query does not see a key. `key` is the first of the
// thread's two, the other is 8 behind.
template <int kColumns>
__device__ __forceinline__ void hide(WgmmaSums<kColumns>& s, const KeyRange* ranges, int key) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const KeyRange range = ranges[j * 8 + threadIdx.x % 4 * 2 + e];
      const unsigned count = range.end - range.first, offset = key - range.first;
      if (offset >= count) s.value[4 * j + e] = -INFINITY;
      if (offset + 8 >= count) s.value[4 * j + 2 + e] = -INFINITY;
    }
  }
}

// A consumer: a warpgroup that owns 64 keys of each tile.
template <class Tiling>
class Consumer {
  static constexpr int kQueries = Tiling::kQueries, kWidth = Tiling::kWidth;
  using KeyRows = typename Tiling::KeyRows;
  using QueryRows = typename Tiling::QueryRows;
  using Scores = WgmmaSums<kQueries>;
  using Left = WgmmaLeft<kQueries / 16>;
  using Gradient = WgmmaSums<Tiling::kColumns>;
  // The left operands of a tile of queries, to be multiplied with them.
  struct Factors {
    Left p, ds;
  };
  struct Gradients {
    Gradient dk, dv;
  };

 public:
  __device__ Consumer(const KeyArguments& a, const Memory<Tiling>& memory, int consumer)
      : a_(a),
        memory_(memory),
        row_(consumer / Tiling::kParts * kRows),
        column_(consumer % Tiling::kParts * Tiling::kColumns),
        consumer_(consumer) {}

  __device__ __forceinline__ void run() {
    for (uint32_t round = 0;; ++round) {
      memory_.key_ring().wait_full(round);
      const KeyWork work = memory_.work(round);
      if (work.ends) break;
      if (work.strangers > 0) clear_strangers(work, round);
      Gradients sums;
      set_zero(sums.dk);
      set_zero(sums.dv);
      if (work.is_seen) {
        sum_over_queries(work, round, sums);
      } else {
        release(memory_.key_ring(), round);
      }
      store(work, sums);
    }
  }

 private:
  __device__ __forceinline__ void sum_over_queries(const KeyWork& work, uint32_t round,
                                                   Gradients& sums) {
    const uint32_t keys = memory_.keys(round);
    const int first = work.key + row_;
    if (!find_seeing(first)) return release(memory_.key_ring(), round);
    if constexpr (Tiling::kOverlaps) {
      sum_overlapping(keys, first, round, sums);
    } else {
      sum_in_turn(keys, first, round, sums);
    }
  }

  // The products of a tile with p and ds run together with the scores of the next one.
  __device__ __forceinline__ void sum_overlapping(uint32_t keys, int first, uint32_t round,
                                                  Gradients& sums) {
    Scores s, dp;
    Factors factors;
    issue_scores(s, dp, keys, count_);
    differentiate<1, 0>(s, dp, first, count_);
    pack(factors, s, dp);
    for (; !memory_.stage(count_).is_last; ++count_) {
      memory_.query_ring().wait_full(count_ + 1);
      issue_scores(s, dp, keys, count_ + 1);
      issue_gradients(sums, factors, count_);
      differentiate<2, 1>(s, dp, first, count_ + 1);
      finish_gradients(sums);
      pack(factors, s, dp);
    }
    release(memory_.key_ring(), round);
    issue_gradients(sums, factors, count_);
    finish_gradients(sums);
    ++count_;
  }

  // For heads so wide that there are no registers for the products of two tiles.
  __device__ __forceinline__ void sum_in_turn(uint32_t keys, int first, uint32_t round,
                                              Gradients& sums) {
    Scores s, dp;
    Factors factors;
    for (bool is_last = false; !is_last; ++count_) {
      memory_.query_ring().wait_full(count_);
      issue_scores(s, dp, keys, count_);
      differentiate<1, 0>(s, dp, first, count_);
      pack(factors, s, dp);
      is_last = memory_.stage(count_).is_last;
      if (is_last) release(memory_.key_ring(), round);
      issue_gradients(sums, factors, count_);
      finish_gradients(sums);
    }
  }

  // Gives tiles of queries back, unread, until one sees some of this consumer's keys; whether one
  // does. Behind it, those that do not count as masked ones.
  __device__ __forceinline__ bool find_seeing(int first) {
    for (bool is_last = false; !is_last; ++count_) {
      memory_.query_ring().wait_full(count_);
      const auto& stage = memory_.stage(count_);
      if (stage.seen.some_in(first, first + kRows)) return true;
      is_last = stage.is_last;
      release(memory_.query_ring(), count_);
    }
    return false;
  }

  // s^T = k q^T and dp^T = v dy^T, a group each.
  __device__ __forceinline__ void issue_scores(Scores& s, Scores& dp, uint32_t keys,
                                               uint32_t count) {
    settle(s);
    settle(dp);
    wgmma_fence();
    multiply_along_width<KeyRows, QueryRows, kWidth>(s, keys, row_, memory_.queries(count), 0,
                                                     false);
    wgmma_commit();
    multiply_along_width<KeyRows, QueryRows, kWidth>(dp, keys + KeyRows::kBytes, row_,
                                                     memory_.dy(count), 0, false);
    wgmma_commit();
  }

  // dv += p^T dy and dk += ds^T q, one group.
  __device__ __forceinline__ void issue_gradients(Gradients& sums, const Factors& factors,
                                                  uint32_t count) {
    settle(sums.dv);
    settle(sums.dk);
    wgmma_fence();
    multiply_along_rows<QueryRows>(sums.dv, factors.p, memory_.dy(count), true, column_);
    multiply_along_rows<QueryRows>(sums.dk, factors.ds, memory_.queries(count), true, column_);
    wgmma_commit();
  }

  __device__ __forceinline__ void finish_gradients(Gradients& sums) {
    wgmma_wait<0>();
    settle(sums.dv);
    settle(sums.dk);
    release(memory_.query_ring(), count_);
  }

  // s and dp become p and ds, the first when all but kAfterScores groups are done, the second when
  // all but kAfterBoth are. ptxas takes most of the exponentials only when all groups are done, and
  // that is as well: the products of the other consumers fill the time.
  template <int kAfterScores, int kAfterBoth>
  __device__ __forceinline__ void differentiate(Scores& s, Scores& dp, int first, uint32_t count) {
    const auto& stage = memory_.stage(count);
    wgmma_wait<kAfterScores>();
    settle(s);
    if (!stage.seen.all_of(first, first + kRows)) {
      const int thread = thread_again() % kWarpgroup;
      hide(s, stage.ranges, first + thread / 32 * 16 + thread % 32 / 4);
    }
    to_probabilities(s, stage.log2_sum, a_.scale * kLog2E);
    wgmma_wait<kAfterBoth>();
    settle(dp);
    to_score_gradients(dp, s, stage.delta);
  }

  __device__ __forceinline__ void pack(Factors& factors, const Scores& p, const Scores& ds) {
    pack_left(factors.p, p);
    pack_left(factors.ds, ds);
  }

  // A warp knows only of its own products that they are done.
  template <class Ring>
  __device__ __forceinline__ void release(const Ring& ring, uint32_t count) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ring.empty(count).arrive();
  }

  // Keys and values behind the sequence's become 0: they may be NaN, and p = 0 does not undo that.
  __device__ __forceinline__ void clear_strangers(const KeyWork& work, uint32_t round) {
    constexpr int kPieces = kWidth / 8;
    const int first = Tiling::kKeys - work.strangers;
    for (int i = threadIdx.x % kWarpgroup; i < kRows * kPieces; i += kWarpgroup) {
      const int row = row_ + i / kPieces;
      if (row < first) continue;
      const uint32_t at = memory_.keys(round) + KeyRows::offset(row, i % kPieces * 8);
      store_shared(at, uint4{});
      store_shared(at + KeyRows::kBytes, uint4{});
    }
    async_fence();
    named_barrier_sync(1 + consumer_, kWarpgroup);
  }

  __device__ __forceinline__ void store(const KeyWork& work, const Gradients& sums) {
    const int row = work.key + row_ + thread_again() % kWarpgroup / 32 * 16;
    if (a_.dk.data) {
      store_gradient(a_.dk, work.batch, work.head, row, a_.keys, column_, a_.scale, sums.dk);
    }
    if (a_.dv.data) {
      store_gradient(a_.dv, work.batch, work.head, row, a_.keys, column_, 1.0f, sums.dv);
    }
  }

  const KeyArguments& a_;
  const Memory<Tiling> memory_;
  const int row_, column_, consumer_;
  uint32_t count_ = 0;  // of tiles of queries
};

template <class Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, 1)
    key_gradients_wgmma(const __grid_constant__ KeyArguments a) {
#if XT_SM90A
  begin_behind_others();
  extern __shared__ unsigned char shared[];
  __shared__ Control<Tiling> control;
  const Memory<Tiling> memory(shared, control);
  if (threadIdx.x == 0) memory.init();
  __syncthreads();
  const int warpgroup = warpgroup_index();
  if (warpgroup == 0) {
    give_registers<Tiling::kProducerRegisters>();
    if (warp_of_warpgroup() == 0) Producer<Tiling>(a, memory).run();
  } else {
    take_registers<Tiling::kConsumerRegisters>();
    Consumer<Tiling>(a, memory, warpgroup - 1).run();
  }
#endif
}

template <class Tiling>
void launch_key_sums(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms,
                     int shares) {
  const FlashProblem& p = call.problem;
  const AttentionSizes& n = p.sizes;
  const TileOrder order(ceil_div(n.keys, Tiling::kKeys), n.batch * n.kv_heads * shares,
                        n.queries * n.head_dim * 4 * n.group() / shares);
  const KeyArguments arguments{map_of_tiles(queries_of(p, call.q), Tiling::kQueries),
                               map_of_tiles(keys_of(p, call.k), Tiling::kKeys),
                               map_of_tiles(values_of(p, call.v), Tiling::kKeys),
                               map_of_tiles(outputs_of(p, call.dy), Tiling::kQueries),
                               order,
                               queue_of(cuda).tickets(),
                               terms,
                               p.visible.key_length,
                               static_cast<int>(n.heads),
                               static_cast<int>(n.keys),
                               shares,
                               static_cast<int>(n.kv_heads) * shares,
                               static_cast<float>(p.scale),
                               call.dk,
                               call.dv};
  const int blocks = std::min(order.count(), gpu_of(cuda).multiprocessors);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{blocks, Tiling::kThreads, Tiling::kSharedBytes}),
                  key_gradients_wgmma<Tiling>, arguments);
}

}  // namespace

void key_sums(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms,
              int shares) {
  const auto launch = [&](auto tiling) {
    launch_key_sums<decltype(tiling)>(cuda, call, terms, shares);
  };
  switch (call.problem.sizes.head_dim) {
    case 32:
      return launch(KeyTiling<32, 2, 96, 5, 2>{});
    case 64:
      return launch(KeyTiling<64, 2, 96, 5, 2>{});
    case 96:
      return launch(KeyTiling<96, 2, 64, 4, 1>{});
    case 128:
      return launch(KeyTiling<128, 2, 48, 4, 1>{});
    case 256:
      return launch(KeyTiling<256, 2, 64, 2, 1, 2, false>{});
  }
}

}  // namespace xtrain::flash_wgmma
