// The query kernel of the backward pass of flash attention by wgmma. A block is one producer and
// several consumer warpgroups, and works through tiles of queries until none is left. For each it
// walks over the tiles of keys that they see, from last to first. A consumer owns 64 queries; their
// scores and dq stay in its registers:
//
//   s = q k^T, dp = dy v^T           all four in shared memory
//   p = 2^(factor s - log2_sum)
//   ds = p (dp - delta)
//   dq += ds k                       ds rounded to bf16 in registers

#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/tma.h"
#include "core/cuda/hopper/warpgroup.h"
#include "core/cuda/hopper/wgmma.h"
#include "core/cuda/launch.h"
#include "ops/attention/flash_wgmma_backward_cuda.h"

namespace xtrain::flash_wgmma {
namespace {

using flash_mma::kAllLanes;
constexpr int kRows = 64;  // queries of a consumer

// Stages: of tiles of keys, and of queries. kPin: see differentiate. kOverlap: see
// sum_overlapping.
template <int kHeadDim, int kConsumerCount, int kKeyCount, int kStageCount, int kQueryStageCount,
          bool kPin, bool kOverlap = true>
struct QueryTiling {
  static constexpr int kWidth = kHeadDim, kConsumers = kConsumerCount, kKeys = kKeyCount;
  static constexpr int kStages = kStageCount, kQueryStages = kQueryStageCount;
  static constexpr bool kPins = kPin, kOverlaps = kOverlap;
  static constexpr int kQueries = kConsumers * kRows, kThreads = (kConsumers + 1) * kWarpgroup;
  // They come in eights, and all together are as many as the kernel begins with: 168 a thread where
  // there are three warpgroups, 128 where there are four.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;

  using QueryRows = SwizzledTile<kQueries, kWidth>;  // or dy
  using KeyRows = SwizzledTile<kKeys, kWidth>;       // or values
  static_assert(kQueryPadding % kQueries == 0);

  // Dynamic shared memory, from a multiple of 1024 on.
  static constexpr int kStagesAt = kQueryStages * 2 * QueryRows::kBytes;
  static constexpr int kSharedBytes = 1024 + kStagesAt + kStages * 2 * KeyRows::kBytes;
};

struct QueryArguments {
  CUtensorMap q, k, v, dy;
  TileOrder order;
  Tickets tickets;  // for tiles; each block begins with the one of its own number
  QueryTerms terms;
  VisibleKeys visible;
  int heads, group;
  float scale;
  FlashGradient dq;
};

// A tile of queries, as the producer describes it to the consumers.
template <int kConsumers>
struct alignas(16) QueryWork {
  float log2_sum[kConsumers * kRows], delta[kConsumers * kRows];
  SeenKeys seen[kConsumers];
  TileRange keys;  // that some query of the tile sees
  int batch, head, query;
  bool ends;  // there is no more work
};

// Static shared memory: how producer and consumers talk.
template <class Tiling>
struct Control {
  QueryWork<Tiling::kConsumers> work[Tiling::kQueryStages];
  uint64_t queries[2 * Tiling::kQueryStages], keys[2 * Tiling::kStages], landed;
};

// Where a block keeps what. Tiles of queries are counted by rounds, tiles of keys through all
// rounds; a count says which stage of a ring holds a tile.
template <class Tiling>
class Memory {
 public:
  using QueryRing = StageRing<Tiling::kQueryStages>;
  using KeyRing = StageRing<Tiling::kStages>;

  __device__ Memory(unsigned char* shared, Control<Tiling>& control)
      : tiles_((shared_address(shared) + 1023) & ~1023u), control_(control) {}

  __device__ uint32_t queries(uint32_t round) const {
    return tiles_ + QueryRing::stage_of(round) * 2 * Tiling::QueryRows::kBytes;
  }
  __device__ uint32_t dy(uint32_t round) const {
    return queries(round) + Tiling::QueryRows::kBytes;
  }
  __device__ uint32_t keys(uint32_t count) const {
    return tiles_ + Tiling::kStagesAt + KeyRing::stage_of(count) * 2 * Tiling::KeyRows::kBytes;
  }
  __device__ uint32_t values(uint32_t count) const { return keys(count) + Tiling::KeyRows::kBytes; }
  __device__ QueryWork<Tiling::kConsumers>& work(uint32_t round) const {
    return control_.work[QueryRing::stage_of(round)];
  }
  __device__ QueryRing query_ring() const { return QueryRing(shared_address(control_.queries)); }
  __device__ KeyRing key_ring() const { return KeyRing(shared_address(control_.keys)); }
  // For keys and values that the producer must see before the consumers may.
  __device__ Mbarrier landed() const { return Mbarrier(shared_address(&control_.landed)); }

  // By one thread.
  __device__ void init() const {
    query_ring().init(Tiling::kConsumers * 4);  // warps
    key_ring().init(Tiling::kConsumers * 4);
    landed().init(1);
    mbarrier_init_done();
  }

 private:
  uint32_t tiles_;
  Control<Tiling>& control_;
};

// The producer: one warp, of which one lane talks to the copy engine.
template <class Tiling>
class Producer {
  using KeyRows = typename Tiling::KeyRows;
  static constexpr int kQueries = Tiling::kQueries, kKeys = Tiling::kKeys;
  using Work = QueryWork<Tiling::kConsumers>;

 public:
  __device__ Producer(const QueryArguments& a, const Memory<Tiling>& memory)
      : a_(a), memory_(memory) {}

  __device__ void run() {
    if (lane_ == 0) {
      for (const CUtensorMap* map : {&a_.q, &a_.k, &a_.v, &a_.dy}) prefetch_map(*map);
    }
    int index = blockIdx.x;
    for (uint32_t round = 0;; ++round) {
      memory_.query_ring().wait_empty(round);
      if (index >= a_.order.count()) return end(round);
      describe(index, round);
      const Work& work = memory_.work(round);
      if (lane_ == 0) load_queries(work, round);
      const int length = a_.visible.key_length[work.batch];
      for (int j = work.keys.end - 1; j >= work.keys.first; --j, ++count_) {
        load_keys(work, j, length);
      }
      index = next();
    }
  }

 private:
  __device__ int next() const {
    const int index = lane_ == 0 ? a_.tickets.draw() : 0;
    return static_cast<int>(gridDim.x) + __shfl_sync(kAllLanes, index, 0);
  }

  // Nobody reads the description before the queries have come.
  __device__ void describe(int index, uint32_t round) {
    const TileOrder::Place place = a_.order.at(index);
    const int batch = place.head / a_.heads, query = place.tile * kQueries;
    const int count = min(kQueries, static_cast<int>(a_.visible.queries) - query);
    Work& work = memory_.work(round);
    const SeenKeys seen = seen_by(a_.visible, batch, query, query + count);
    if (lane_ == 0) {
      work.batch = batch;
      work.head = place.head - batch * a_.heads;
      work.query = query;
      work.keys = TileRange::of(seen, kKeys);
      work.ends = false;
    }
#pragma unroll 1  // registers are few here
    for (int i = 0; i < Tiling::kConsumers; ++i) {
      const SeenKeys of_consumer =
          seen_by(a_.visible, batch, query + i * kRows, query + min(count, (i + 1) * kRows));
      if (lane_ == 0) work.seen[i] = of_consumer;
    }
    __syncwarp();
  }

  __device__ void end(uint32_t round) {
    if (lane_ != 0) return;
    a_.tickets.finish();
    memory_.work(round).ends = true;
    memory_.query_ring().full(round).arrive();
  }

  __device__ void load_queries(const Work& work, uint32_t round) {
    constexpr int kTermBytes = kQueries * sizeof(float);
    const Mbarrier full = memory_.query_ring().full(round);
    full.arrive_expecting(2 * Tiling::QueryRows::kBytes + 2 * kTermBytes);
    load_tile(memory_.queries(round), a_.q, work.batch, work.head, work.query, full);
    load_tile(memory_.dy(round), a_.dy, work.batch, work.head, work.query, full);
    const int64_t terms =
        (int64_t{work.batch} * a_.heads + work.head) * a_.terms.padded + work.query;
    load_bytes(shared_address(work.log2_sum), a_.terms.log2_sum + terms, kTermBytes, full);
    load_bytes(shared_address(work.delta), a_.terms.delta + terms, kTermBytes, full);
  }

  // length: the sequence's keys. What lies behind them may be anything, NaN too, and 0 NaN is not
  // 0.
  __device__ void load_keys(const Work& work, int j, int length) {
    memory_.key_ring().wait_empty(count_);
    const int key = j * kKeys;
    const Mbarrier full = memory_.key_ring().full(count_);
    const bool has_strangers = length < key + kKeys && length < a_.visible.keys;
    const Mbarrier told = has_strangers ? memory_.landed() : full;
    if (lane_ == 0) {
      told.arrive_expecting(2 * KeyRows::kBytes);
      const int head = work.head / a_.group;
      load_tile(memory_.keys(count_), a_.k, work.batch, head, key, told);
      load_tile(memory_.values(count_), a_.v, work.batch, head, key, told);
    }
    if (!has_strangers) return;
    told.wait(cleared_++ % 2);
    clear_rows(memory_.keys(count_), length - key);
    clear_rows(memory_.values(count_), length - key);
    async_fence();
    __syncwarp();
    if (lane_ == 0) full.arrive();
  }

  // Rows first .. of a tile become 0.
  __device__ void clear_rows(uint32_t tile, int first) {
    constexpr int kPieces = Tiling::kWidth / 8;
    for (int i = first * kPieces + lane_; i < kKeys * kPieces; i += 32) {
      store_shared(tile + KeyRows::offset(i / kPieces, i % kPieces * 8), uint4{});
    }
  }

  const QueryArguments& a_;
  const Memory<Tiling> memory_;
  const int lane_ = threadIdx.x % 32;
  uint32_t count_ = 0;    // of tiles of keys
  uint32_t cleared_ = 0;  // of those whose last rows were cleared
};

// Scores of keys that a query does not see become -infinity. `column` is the thread's first one.
template <int kColumns>
__device__ __forceinline__ void hide(WgmmaSums<kColumns>& s, const KeyRange (&ranges)[2],
                                     int column) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const unsigned count = ranges[h].end - ranges[h].first, offset = column - ranges[h].first;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (offset + 8 * j + e >= count) s.value[4 * j + 2 * h + e] = -INFINITY;
      }
    }
  }
}

// A consumer: a warpgroup that owns 64 queries of each tile.
template <class Tiling>
class Consumer {
  static constexpr int kKeys = Tiling::kKeys, kWidth = Tiling::kWidth;
  using QueryRows = typename Tiling::QueryRows;
  using KeyRows = typename Tiling::KeyRows;
  using Work = QueryWork<Tiling::kConsumers>;
  using Scores = WgmmaSums<kKeys>;
  using Left = WgmmaLeft<kKeys / 16>;
  using Gradient = WgmmaSums<kWidth>;
  // Of the thread's two rows.
  struct RowTerms {
    float log2_sum[2], delta[2];
  };

 public:
  __device__ Consumer(const QueryArguments& a, const Memory<Tiling>& memory, int consumer)
      : a_(a), memory_(memory), consumer_(consumer) {}

  __device__ __forceinline__ void run() {
    for (uint32_t round = 0;; ++round) {
      memory_.query_ring().wait_full(round);
      const Work& work = memory_.work(round);
      if (work.ends) break;
      const int batch = work.batch, head = work.head, query = work.query;
      Gradient dq;
      set_zero(dq);
      sum_over_keys(work, round, dq);
      store_gradient(a_.dq, batch, head,
                     query + consumer_ * kRows + thread_again() % kWarpgroup / 32 * 16,
                     a_.visible.queries, 0, a_.scale, dq);
    }
  }

 private:
  // Every tile of keys is waited for and given back, seen or not.
  __device__ __forceinline__ void sum_over_keys(const Work& work, uint32_t round, Gradient& dq) {
    const SeenKeys seen = work.seen[consumer_];
    const TileRange all = work.keys, mine = TileRange::of(seen, kKeys);
    if (mine.count() == 0) {
      release(memory_.query_ring(), round);
      return skip(all.count());
    }
    skip(all.end - mine.end);
    if constexpr (Tiling::kOverlaps) {
      sum_overlapping(work, round, seen, mine, dq);
    } else {
      sum_in_turn(work, round, seen, mine, dq);
    }
    skip(mine.first - all.first);
  }

  // The product of a tile with ds runs together with the scores of the next one.
  __device__ __forceinline__ void sum_overlapping(const Work& work, uint32_t round,
                                                  const SeenKeys& seen, const TileRange& keys,
                                                  Gradient& dq) {
    const RowTerms terms = terms_of(work);
    const uint32_t queries = memory_.queries(round);
    Scores s, dp;
    Left ds;
    int j = keys.end - 1;
    issue_scores(s, dp, queries, count_);
    differentiate<1, 0>(s, dp, work, terms, seen, j, queries);
    pack_left(ds, dp);
    for (--j; j >= keys.first; --j) {
      issue_scores(s, dp, queries, count_ + 1);
      issue_gradient(dq, ds, count_);
      differentiate<2, 1>(s, dp, work, terms, seen, j, queries);
      finish_gradient(dq);
      pack_left(ds, dp);
    }
    release(memory_.query_ring(), round);
    issue_gradient(dq, ds, count_);
    finish_gradient(dq);
  }

  // For heads so wide that there are no registers for the products of two tiles.
  __device__ __forceinline__ void sum_in_turn(const Work& work, uint32_t round,
                                              const SeenKeys& seen, const TileRange& keys,
                                              Gradient& dq) {
    const RowTerms terms = terms_of(work);
    const uint32_t queries = memory_.queries(round);
    Scores s, dp;
    Left ds;
    for (int j = keys.end - 1; j >= keys.first; --j) {
      issue_scores(s, dp, queries, count_);
      differentiate<1, 0>(s, dp, work, terms, seen, j, queries);
      pack_left(ds, dp);
      if (j == keys.first) release(memory_.query_ring(), round);
      issue_gradient(dq, ds, count_);
      finish_gradient(dq);
    }
  }

  // s = q k^T and dp = dy v^T, a group each.
  __device__ __forceinline__ void issue_scores(Scores& s, Scores& dp, uint32_t queries,
                                               uint32_t count) {
    memory_.key_ring().wait_full(count);
    settle(s);
    settle(dp);
    wgmma_fence();
    multiply_along_width<QueryRows, KeyRows, kWidth>(s, queries, consumer_ * kRows,
                                                     memory_.keys(count), 0, false);
    wgmma_commit();
    multiply_along_width<QueryRows, KeyRows, kWidth>(
        dp, queries + QueryRows::kBytes, consumer_ * kRows, memory_.values(count), 0, false);
    wgmma_commit();
  }
  // dq += ds k
  __device__ __forceinline__ void issue_gradient(Gradient& dq, const Left& ds, uint32_t count) {
    settle(dq);
    wgmma_fence();
    multiply_along_rows<KeyRows>(dq, ds, memory_.keys(count), true);
    wgmma_commit();
  }

  __device__ __forceinline__ void finish_gradient(Gradient& dq) {
    wgmma_wait<0>();
    settle(dq);
    release(memory_.key_ring(), count_);
    ++count_;
  }

  // s and dp become p and ds, the first when all but kAfterScores groups are done, the second when
  // all but kAfterBoth are. Unless pinned, ptxas takes most of the exponentials only when all
  // groups are done. That is worse where the products of a tile take much longer than its
  // exponentials, and better where they do not and the products of the other consumers fill the
  // time.
  template <int kAfterScores, int kAfterBoth>
  __device__ __forceinline__ void differentiate(Scores& s, Scores& dp, const Work& work,
                                                const RowTerms& terms, const SeenKeys& seen, int j,
                                                uint32_t queries) {
    wgmma_wait<kAfterScores>();
    settle(s);
    if (!seen.all_of(j * kKeys, (j + 1) * kKeys)) hide_unseen(s, work, j);
    const float factor = a_.scale * kLog2E;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      s.value[i] = probability(s.value[i], factor, terms.log2_sum[i / 2 % 2]);
    }
    if (Tiling::kPins) finish_exponentials(s, queries);
    wgmma_wait<kAfterBoth>();
    settle(dp);
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      dp.value[i] = s.value[i] * (dp.value[i] - terms.delta[i / 2 % 2]);
    }
  }

  // The first of the thread's two rows in the tile; the other one is 8 below.
  __device__ __forceinline__ int row() const {
    const int thread = thread_again() % kWarpgroup;
    return consumer_ * kRows + thread / 32 * 16 + thread % 32 / 4;
  }
  __device__ __forceinline__ RowTerms terms_of(const Work& work) const {
    return RowTerms{{work.log2_sum[row()], work.log2_sum[row() + 8]},
                    {work.delta[row()], work.delta[row() + 8]}};
  }
  __device__ __forceinline__ void hide_unseen(Scores& s, const Work& work, int j) {
    KeyRange ranges[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int query = work.query + row() + 8 * h;
      if (query < a_.visible.queries) ranges[h] = a_.visible.of(work.batch, query);
    }
    hide(s, ranges, j * kKeys + thread_again() % 4 * 2);
  }

  // A warp knows only of its own products that they are done.
  template <class Ring>
  __device__ __forceinline__ void release(const Ring& ring, uint32_t count) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ring.empty(count).arrive();
  }
  __device__ __forceinline__ void skip(int tiles) {
    for (int i = 0; i < tiles; ++i, ++count_) {
      memory_.key_ring().wait_full(count_);
      release(memory_.key_ring(), count_);
    }
  }

  const QueryArguments& a_;
  const Memory<Tiling> memory_;
  const int consumer_;
  uint32_t count_ = 0;  // of tiles of keys
};

template <class Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, 1)
    query_gradients_wgmma(const __grid_constant__ QueryArguments a) {
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
void launch_query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                            const QueryTerms& terms) {
  const FlashProblem& p = call.problem;
  const AttentionSizes& n = p.sizes;
  const TileOrder order(ceil_div(n.queries, Tiling::kQueries), n.batch * n.heads,
                        n.keys * n.head_dim * 4 / n.group());
  const QueryArguments arguments{map_of_tiles(queries_of(p, call.q), Tiling::kQueries),
                                 map_of_tiles(keys_of(p, call.k), Tiling::kKeys),
                                 map_of_tiles(values_of(p, call.v), Tiling::kKeys),
                                 map_of_tiles(outputs_of(p, call.dy), Tiling::kQueries),
                                 order,
                                 queue_of(cuda).tickets(),
                                 terms,
                                 p.visible,
                                 static_cast<int>(n.heads),
                                 static_cast<int>(n.group()),
                                 static_cast<float>(p.scale),
                                 call.dq};
  const int blocks = std::min(order.count(), gpu_of(cuda).multiprocessors);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{blocks, Tiling::kThreads, Tiling::kSharedBytes}),
                  query_gradients_wgmma<Tiling>, arguments);
}

}  // namespace

void query_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call,
                     const QueryTerms& terms) {
  const auto launch = [&](auto tiling) {
    launch_query_gradients<decltype(tiling)>(cuda, call, terms);
  };
  switch (call.problem.sizes.head_dim) {
    case 32:
      return launch(QueryTiling<32, 2, 128, 4, 2, false>{});
    case 64:
      return launch(QueryTiling<64, 2, 128, 4, 2, false>{});
    case 96:
      return launch(QueryTiling<96, 2, 96, 3, 1, true>{});
    case 128:
      return launch(QueryTiling<128, 2, 64, 4, 1, true>{});
    case 256:
      return launch(QueryTiling<256, 2, 48, 2, 1, true, false>{});
  }
}

}  // namespace xtrain::flash_wgmma
