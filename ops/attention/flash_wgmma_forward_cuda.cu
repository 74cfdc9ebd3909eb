// Flash attention forward on the tensor cores of sm_90a by wgmma, after FlashAttention-3 (Shah et
// al., arXiv 2407.08608).
//
// A block is one producer and several consumer warpgroups, and stays on its multiprocessor: it
// works through tiles of queries until none is left. The producer asks the copy engine for the
// queries of the next tile and for the tiles of keys and values that it sees, from last to first,
// as far ahead as there is room. A consumer owns 64 queries; scores and output stay in its
// registers:
//
//   for each tile of keys, the last one first
//     s = q k^T                  tensor cores, queries and keys in shared memory
//     p = 2^(scale log2(e) s - shift)    shift of a row: near its largest score so far
//     o = o 2^(shift before - shift) + p v    tensor cores, p rounded to bf16 in registers
//
// The tensor cores work while the exponentials are computed: o += p v of one tile of keys is issued
// behind s = q k^T of the next, whose exponentials are taken while it runs.

#include <algorithm>

#include "core/cuda/exponential.h"
#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/tma.h"
#include "core/cuda/hopper/warpgroup.h"
#include "core/cuda/hopper/wgmma.h"
#include "core/cuda/launch.h"
#include "core/cuda/shared_memory.h"
#include "ops/attention/flash_wgmma_cuda.h"
#include "ops/attention/flash_wgmma_softmax_cuda.h"

namespace xtrain {
namespace {

using flash_mma::row_sum;
using namespace flash_wgmma;

constexpr float kLn2 = 0.693147180559945309f;
constexpr int kRows = 64;  // queries of a consumer

// A consumer needs registers for its scores (kKeys / 2 a thread), their rounded probabilities (half
// of that) and its output (kWidth / 2).
template <int kHeadDim, int kConsumerCount, int kKeyCount, int kStageCount,
          int kQueryStageCount = 2>
struct ForwardTiling {
  static constexpr int kWidth = kHeadDim, kConsumers = kConsumerCount, kKeys = kKeyCount;
  static constexpr int kStages = kStageCount, kQueryStages = kQueryStageCount;
  static constexpr int kQueries = kConsumers * kRows, kThreads = (kConsumers + 1) * kWarpgroup;
  // Of the 64 Ki of a multiprocessor; a thread has a multiple of 8.
  static_assert(kConsumers == 2 || kConsumers == 3);
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;

  using QueryRows = SwizzledTile<kRows, kWidth>;  // of one consumer; its output goes there, too
  using KeyRows = SwizzledTile<kKeys, kWidth>;    // or values

  // Dynamic shared memory, from a multiple of 1024 on.
  static constexpr int kQueryBytes = kConsumers * QueryRows::kBytes;
  static constexpr int kKeysAt = kQueryStages * kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * KeyRows::kBytes;
  static constexpr int kSharedBytes = 1024 + kValuesAt + kStages * KeyRows::kBytes;
};

struct ForwardArguments {
  CUtensorMap q, k, v, o;
  VisibleKeys visible;
  TileOrder order;
  Tickets tickets;  // for tiles; each block begins with the one of its own number
  int missing;      // queries before the first that the first tile has room for: whole consumers
  int heads, group;
  float scale;
  float* log_sum;  // [B, H, Tq]
};

// A tile of queries, as the producer describes it to the consumers.
template <int kConsumers>
struct QueryWork {
  int batch;  // -1: there is no more work
  int head;
  int query;                  // the first; those below 0 and those behind the last do not exist
  SlidingRange range;         // of the queries from `query` on
  TileRange keys;             // that some query of the tile sees
  SeenKeys seen[kConsumers];  // by the queries of a consumer
};

// Static shared memory: how producer and consumers talk.
template <class Tiling>
struct Control {
  uint64_t queries[2 * Tiling::kQueryStages], keys[2 * Tiling::kStages],
      values[2 * Tiling::kStages], landed;
  QueryWork<Tiling::kConsumers> work[Tiling::kQueryStages];
};

// Where a block keeps what. Tiles of queries are counted by rounds, tiles of keys and values
// through all rounds; a count says which stage of a ring holds a tile.
template <class Tiling>
class Memory {
 public:
  using QueryRing = StageRing<Tiling::kQueryStages>;
  using KeyRing = StageRing<Tiling::kStages>;

  __device__ Memory(unsigned char* shared, Control<Tiling>& control)
      : tiles_((shared_address(shared) + 1023) & ~1023u), control_(control) {}

  __device__ uint32_t queries(uint32_t round, int consumer) const {
    return tiles_ + query_ring().stage_of(round) * Tiling::kQueryBytes +
           consumer * Tiling::QueryRows::kBytes;
  }
  __device__ uint32_t keys(uint32_t count) const {
    return tiles_ + Tiling::kKeysAt + key_ring().stage_of(count) * Tiling::KeyRows::kBytes;
  }
  __device__ uint32_t values(uint32_t count) const {
    return tiles_ + Tiling::kValuesAt + value_ring().stage_of(count) * Tiling::KeyRows::kBytes;
  }
  __device__ QueryWork<Tiling::kConsumers>& work(uint32_t round) const {
    return control_.work[query_ring().stage_of(round)];
  }
  __device__ QueryRing query_ring() const { return QueryRing(shared_address(control_.queries)); }
  __device__ KeyRing key_ring() const { return KeyRing(shared_address(control_.keys)); }
  __device__ KeyRing value_ring() const { return KeyRing(shared_address(control_.values)); }
  // For values that the producer must see before the consumers may.
  __device__ Mbarrier landed() const { return Mbarrier(shared_address(&control_.landed)); }

  // By one thread.
  __device__ void init() const {
    query_ring().init(Tiling::kConsumers);
    key_ring().init(Tiling::kConsumers * 4);  // warps
    value_ring().init(Tiling::kConsumers * 4);
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
  using Tile = typename Tiling::KeyRows;

 public:
  __device__ Producer(const ForwardArguments& a, const Memory<Tiling>& memory)
      : a_(a), memory_(memory) {}

  __device__ void run() {
    if (lane_ == 0) {
      for (const CUtensorMap* map : {&a_.q, &a_.k, &a_.v, &a_.o}) prefetch_map(*map);
    }
    int index = blockIdx.x;
    for (uint32_t round = 0;; ++round) {
      memory_.query_ring().wait_empty(round);
      if (index >= a_.order.count()) return end(round);
      const int next = lane_ == 0 ? a_.tickets.draw() : 0;  // needed when this tile is done
      describe(index, round);
      const auto& work = memory_.work(round);
      if (lane_ == 0) load_queries(work, round);
      const int length = a_.visible.key_length[work.batch];
      // In the order in which they are used: the scores of a tile come before the output of the
      // last.
      const int first = work.keys.first, last = work.keys.end - 1;
      if (first <= last) load_keys(work, last);
      for (int j = last; j >= first; --j) {
        if (j > first) load_keys(work, j - 1);
        load_values(work, j, length);
      }
      index = static_cast<int>(gridDim.x) + __shfl_sync(flash_mma::kAllLanes, next, 0);
    }
  }

 private:
  // Nobody reads the description before the queries have come.
  __device__ void describe(int index, uint32_t round) {
    const TileOrder::Place place = a_.order.at(index);
    const int batch = place.head / a_.heads, queries = static_cast<int>(a_.visible.queries);
    const int query = place.tile * Tiling::kQueries - a_.missing;
    auto& work = memory_.work(round);
    const SeenKeys seen =
        seen_by(a_.visible, batch, max(0, query), min(queries, query + Tiling::kQueries));
    if (lane_ == 0) {
      work.batch = batch;
      work.head = place.head - batch * a_.heads;
      work.query = query;
      work.range = SlidingRange::from(a_.visible, batch, query);
      work.keys = TileRange::of(seen, Tiling::kKeys);
    }
#pragma unroll 1  // registers are few here
    for (int i = 0; i < Tiling::kConsumers; ++i) {
      const int first = query + i * kRows;
      const SeenKeys of_consumer =
          seen_by(a_.visible, batch, max(0, first), min(queries, first + kRows));
      if (lane_ == 0) work.seen[i] = of_consumer;
    }
    __syncwarp();
  }

  __device__ void end(uint32_t round) {
    if (lane_ != 0) return;
    a_.tickets.finish();
    memory_.work(round).batch = -1;
    memory_.query_ring().full(round).arrive();
  }

  __device__ void load_queries(const QueryWork<Tiling::kConsumers>& work, uint32_t round) {
    const Mbarrier full = memory_.query_ring().full(round);
    full.arrive_expecting(Tiling::kQueryBytes);
#pragma unroll 1
    for (int i = 0; i < Tiling::kConsumers; ++i) {
      load_tile(memory_.queries(round, i), a_.q, work.batch, work.head,
                max(0, work.query + i * kRows), full);
    }
  }

  __device__ void load_keys(const QueryWork<Tiling::kConsumers>& work, int j) {
    const uint32_t count = key_count_++;
    memory_.key_ring().wait_empty(count);
    if (lane_ != 0) return;
    const Mbarrier full = memory_.key_ring().full(count);
    full.arrive_expecting(Tile::kBytes);
    load_tile(memory_.keys(count), a_.k, work.batch, work.head / a_.group, j * Tiling::kKeys, full);
  }

  // length: the sequence's keys. What lies behind them may be anything, NaN too, and 0 NaN is not
  // 0.
  __device__ void load_values(const QueryWork<Tiling::kConsumers>& work, int j, int length) {
    const uint32_t count = value_count_++;
    memory_.value_ring().wait_empty(count);
    const int key = j * Tiling::kKeys;
    const Mbarrier full = memory_.value_ring().full(count);
    const bool has_strangers = length < key + Tiling::kKeys && length < a_.visible.keys;
    const Mbarrier told = has_strangers ? memory_.landed() : full;
    if (lane_ == 0) {
      told.arrive_expecting(Tile::kBytes);
      load_tile(memory_.values(count), a_.v, work.batch, work.head / a_.group, key, told);
    }
    if (!has_strangers) return;
    told.wait(cleared_++ % 2);
    clear_rows(memory_.values(count), length - key);
    if (lane_ == 0) full.arrive();
  }

  // Rows first .. of a tile become 0.
  __device__ void clear_rows(uint32_t tile, int first) {
    constexpr int kPieces = Tiling::kWidth / 8;
    for (int i = first * kPieces + lane_; i < Tiling::kKeys * kPieces; i += 32) {
      store_shared(tile + Tile::offset(i / kPieces, i % kPieces * 8), uint4{});
    }
    async_fence();
    __syncwarp();
  }

  const ForwardArguments& a_;
  const Memory<Tiling> memory_;
  const int lane_ = threadIdx.x % 32;
  uint32_t key_count_ = 0, value_count_ = 0;  // tiles
  uint32_t cleared_ = 0;                      // of values, whose last rows were cleared
};

// A consumer: a warpgroup that owns 64 queries of each tile.
template <class Tiling>
class Consumer {
  static constexpr int kKeys = Tiling::kKeys, kWidth = Tiling::kWidth;
  using QueryRows = typename Tiling::QueryRows;
  using KeyRows = typename Tiling::KeyRows;
  using Work = QueryWork<Tiling::kConsumers>;
  using Scores = WgmmaSums<kKeys>;
  using Probabilities = WgmmaLeft<kKeys / 16>;
  using Output = WgmmaSums<kWidth>;

 public:
  __device__ Consumer(const ForwardArguments& a, const Memory<Tiling>& memory, int consumer)
      : a_(a), memory_(memory), consumer_(consumer), warp_(warp_of_warpgroup()) {}

  __device__ __forceinline__ void run() {
    for (uint32_t round = 0;; ++round) {
      memory_.query_ring().wait_full(round);
      const Work& work = memory_.work(round);
      if (work.batch < 0) break;
      RunningSoftmax softmax;
      Output o;
      set_zero(o);
      attend(work, round, softmax, o);
      store(work, round, softmax, o);
      if (Tiling::kQueryStages == 1) give_back_queries(round);
    }
    // The copy engine may still be reading this block's shared memory.
    if (threadIdx.x % kWarpgroup == 0) store_wait_read();
  }

 private:
  // Every tile of keys is waited for and given back, seen or not.
  __device__ __forceinline__ void attend(const Work& work, uint32_t round, RunningSoftmax& softmax,
                                         Output& o) {
    const SeenKeys seen = work.seen[consumer_];
    const TileRange all = work.keys, mine = TileRange::of(seen, kKeys);
    if (mine.count() == 0) {
      skip(all.count());
      give_back_last_queries(round);
      return;
    }
    skip(all.end - mine.end);
    const uint32_t queries = memory_.queries(round, consumer_);
    const float factor = a_.scale * kLog2E;
    Scores s;
    Probabilities p;
    float rescale[2];
    int j = mine.end - 1;
    // On the diagonal every other consumer sees no more than the first half of its last keys.
    if (seen.any_end <= j * kKeys + kKeys / 2) {
      begin<kKeys % 32 == 0 ? kKeys / 2 : kKeys>(work, seen, queries, j, softmax, p);
    } else {
      begin<kKeys>(work, seen, queries, j, softmax, p);
    }
    give_back_last_queries(round);
    for (--j; j >= mine.first; --j, ++count_) {
      issue_scores(s, queries, count_ + 1);
      issue_output(o, p, count_);
      wgmma_wait<1>();
      settle(s);
      release(memory_.key_ring(), count_ + 1);
      hide_unseen(s, work, seen, j * kKeys);
      const bool moves = advance_softmax(softmax, s, factor, rescale);
      finish_exponentials(softmax, queries);
      wgmma_wait<0>();
      settle(o);
      release(memory_.value_ring(), count_);
      pack_left(p, s);
      if (moves) scale_rows(o, rescale);
    }
    issue_output(o, p, count_);
    wgmma_wait<0>();
    settle(o);
    release(memory_.value_ring(), count_);
    ++count_;
    skip(mine.first - all.first);
  }

  // The probabilities of the first tile of keys, of which the first kSeen may be visible.
  template <int kSeen>
  __device__ __forceinline__ void begin(const Work& work, const SeenKeys& seen, uint32_t queries,
                                        int j, RunningSoftmax& softmax, Probabilities& p) {
    WgmmaSums<kSeen> s;
    float rescale[2];  // of an output that is still 0
    issue_scores(s, queries, count_);
    wgmma_wait<0>();
    settle(s);
    release(memory_.key_ring(), count_);
    hide_unseen(s, work, seen, j * kKeys);
    advance_softmax(softmax, s, a_.scale * kLog2E, rescale);
    pack_left(p, s);
  }

  // s = q k^T
  template <int kColumns>
  __device__ __forceinline__ void issue_scores(WgmmaSums<kColumns>& s, uint32_t queries,
                                               uint32_t count) {
    memory_.key_ring().wait_full(count);
    settle(s);
    wgmma_fence();
    multiply_along_width<QueryRows, KeyRows, kWidth>(s, queries, 0, memory_.keys(count), 0, false);
    wgmma_commit();
  }
  // o += p v
  __device__ __forceinline__ void issue_output(Output& o, const Probabilities& p, uint32_t count) {
    memory_.value_ring().wait_full(count);
    settle(o);
    wgmma_fence();
    multiply_along_rows<KeyRows>(o, p, memory_.values(count), true);
    wgmma_commit();
  }

  // The thread's first row in the tile of queries; the second one is 8 below.
  __device__ __forceinline__ int row() const {
    return consumer_ * kRows + warp_ * 16 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ bool exists(const Work& work, int row_of_tile) const {
    const int query = work.query + row_of_tile;
    return query >= 0 && query < a_.visible.queries;
  }
  template <int kColumns>
  __device__ __forceinline__ void hide_unseen(WgmmaSums<kColumns>& s, const Work& work,
                                              const SeenKeys& seen, int key) {
    if (seen.all_of(key, key + kColumns)) return;
    const int column = key + threadIdx.x % 4 * 2;
    int first[2], end[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int i = row() + 8 * h;
      first[h] = work.range.first_of(i) - column;
      end[h] = work.range.end_of(i) - column;
      if (a_.visible.document_start && exists(work, i)) {
        const int64_t t = work.batch * a_.visible.queries + work.query + i;
        first[h] = max(first[h], a_.visible.document_start[t] - column);
        if (first[h] >= end[h]) end[h] = 0;  // a blocked query
      }
    }
    if (key < seen.all_first) hide_before(s, first);
    if (key + kColumns > seen.all_end) hide_from(s, end);
  }

  // A warp knows only of its own products that they are done.
  __device__ __forceinline__ void release(const StageRing<Tiling::kStages>& ring, uint32_t count) {
    if (threadIdx.x % 32 == 0) ring.empty(count).arrive();
  }
  __device__ __forceinline__ void skip(int tiles) {
    for (int i = 0; i < tiles; ++i, ++count_) {
      memory_.key_ring().wait_full(count_);
      release(memory_.key_ring(), count_);
      memory_.value_ring().wait_full(count_);
      release(memory_.value_ring(), count_);
    }
  }

  // The queries' place holds the output until the copy engine has read it.
  __device__ __forceinline__ void give_back_queries(uint32_t round) {
    if (threadIdx.x % kWarpgroup == 0) {
      store_wait_read();
      memory_.query_ring().empty(round).arrive();
    }
  }
  // Those of the round before, some work later, so that nobody waits for the engine.
  __device__ __forceinline__ void give_back_last_queries(uint32_t round) {
    if (Tiling::kQueryStages > 1 && round > 0) give_back_queries(round - 1);
  }

  __device__ __forceinline__ void store(const Work& work, uint32_t round,
                                        const RunningSoftmax& softmax, Output& o) {
    float share[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(softmax.sum[h]);
      share[h] = sum > 0.0f ? 1.0f / sum : 0.0f;
      if (threadIdx.x % 4 == 0 && exists(work, row() + 8 * h)) {
        const int64_t head = int64_t{work.batch} * a_.heads + work.head;
        a_.log_sum[head * a_.visible.queries + work.query + row() + 8 * h] =
            sum > 0.0f ? softmax.shift[h] * kLn2 + logf(sum) : INFINITY;
      }
    }
    scale_rows(o, share);
    const uint32_t place = memory_.queries(round, consumer_);
    const int batch = work.batch, head = work.head, query = work.query + consumer_ * kRows;
    named_barrier_sync(1 + consumer_, kWarpgroup);  // every warp is done with the queries
    store_rounded(place, warp_, o);
    async_fence();
    named_barrier_sync(1 + consumer_, kWarpgroup);
    // The engine cuts off what lies behind the last query, but cannot begin before the first.
    if (threadIdx.x % kWarpgroup == 0 && query >= 0) {
      store_tile(a_.o, batch, head, query, place);
      store_commit();
    }
  }

  const ForwardArguments& a_;
  const Memory<Tiling> memory_;
  const int consumer_, warp_;
  uint32_t count_ = 0;  // of tiles of keys
};

template <class Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, 1)
    flash_forward_wgmma(const __grid_constant__ ForwardArguments a) {
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
void launch_forward(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  const FlashProblem& p = call.problem;
  const AttentionSizes& n = p.sizes;
  const TileOrder order(ceil_div(n.queries, Tiling::kQueries), n.batch * n.heads,
                        n.keys * n.head_dim * 4 / n.group());
  // What is missing to whole tiles is missing at the beginning, where a causal mask shows least.
  const int64_t missing = (order.tiles_of_head * Tiling::kQueries - n.queries) / kRows * kRows;
  const ForwardArguments arguments{map_of_tiles(queries_of(p, call.q), kRows),
                                   map_of_tiles(keys_of(p, call.k), Tiling::kKeys),
                                   map_of_tiles(values_of(p, call.v), Tiling::kKeys),
                                   map_of_tiles(outputs_of(p, call.o), kRows),
                                   p.visible,
                                   order,
                                   queue_of(cuda).tickets(),
                                   static_cast<int>(missing),
                                   static_cast<int>(n.heads),
                                   static_cast<int>(n.group()),
                                   static_cast<float>(p.scale),
                                   call.log_sum};
  const int blocks = std::min(order.count(), gpu_of(cuda).multiprocessors);
  XT_LAUNCH_AHEAD(cuda, (LaunchShape{blocks, Tiling::kThreads, Tiling::kSharedBytes}),
                  flash_forward_wgmma<Tiling>, arguments);
}

// Calls f(tiling) with the tiling of a head size.
template <class F>
void with_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(ForwardTiling<32, 3, 128, 4>{});
    case 64:
      return f(ForwardTiling<64, 3, 128, 4>{});
    case 96:
      return f(ForwardTiling<96, 3, 96, 4>{});
    case 128:
      return f(ForwardTiling<128, 2, 128, 2>{});
    case 256:
      return f(ForwardTiling<256, 2, 64, 2, 1>{});
  }
}

}  // namespace

std::string wgmma_obstacle(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  const FlashProblem& p = call.problem;
  const TokenHeads mapped[] = {queries_of(p, call.q), keys_of(p, call.k), values_of(p, call.v),
                               outputs_of(p, call.o)};
  return obstacle(cuda, p, mapped);
}

void wgmma_forward(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  check_no_obstacle(wgmma_obstacle(cuda, call));
  with_tiling(call.problem.sizes.head_dim,
              [&](auto tiling) { launch_forward<decltype(tiling)>(cuda, call); });
}

}  // namespace xtrain
