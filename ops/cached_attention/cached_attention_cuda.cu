// A cluster of blocks has the queries that share a key head of a row, and each of its blocks a
// share of the row's keys. Before the kernels that make the token are done, each lane asks for its
// first keys and values. Then the queries and the key are normed and turned, a head by each warp,
// and every group of lanes adds up its keys; groups, warps and blocks are put together in their
// order (flash_split_keys_cuda.cu does the same by two kernels).

#include <cooperative_groups.h>

#include <algorithm>

#include "core/cuda/few_rows.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"
#include "ops/attention/head_lanes_cuda.h"
#include "ops/attention/running_softmax_cuda.h"
#include "ops/cached_attention/cached_attention_kernels.h"

namespace xtrain {
namespace {

namespace cg = cooperative_groups;

constexpr int kWarps = 16, kThreads = kWarps * kWarp;
constexpr int kMostQueries = kMostFewRows;  // that share a key head
constexpr int kBlocks = 8;                  // of a cluster

// The work of a warp before keys can be met: warps below kMostQueries have a query.
constexpr int kKeyWarp = kMostQueries, kValueWarp = kMostQueries + 1;
static_assert(kValueWarp < kWarps);

// What the blocks of a cluster share of each query, and a block's warps among themselves.
template <class A, int kQueries, int kHead>
struct BlockMemory {
  struct Sums {
    A maximum[kQueries], sum[kQueries], o[kQueries][kHead];
  };
  alignas(16) A q[kQueries][kHead], key[kHead];  // as the cache's dtype rounds them
  alignas(16) A value[kHead];
  Sums of_warps[kWarps];
  Sums of_block;
};

template <class T, int kLanes>
struct HeadLane {
  using A = Accumulator<T>;
  static constexpr int kColumns = kPackSize<T>, kHead = kLanes * kColumns, kHalf = kHead / 2;
  using Columns = Elements<A, kColumns>;

  int lane = threadIdx.x % kLanes, column = lane * kColumns;

  // What a head's elements are turned by; column c of the lower half goes with c + kHalf, or 2i
  // with 2i + 1.
  struct Angles {
    A cos[kColumns], sin[kColumns];
  };
  __device__ Angles angles(const CachedAttention<T>& p, int position) const {
    Angles angles{};
    if (!p.cos) return angles;
    const bool adjacent = p.options.pairing == RopePairing::adjacent;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int64_t at =
          int64_t{position} * kHalf + (adjacent ? (column + i) / 2 : (column + i) % kHalf);
      angles.cos[i] = p.cos[at];
      angles.sin[i] = p.sin[at];
    }
    return angles;
  }

  // As qk_norm_rope computes it.
  __device__ Columns normed(const Columns& x, const Pack<T>& weight, double eps) const {
    const Values<T> w = values_of(weight);
    A squares = 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) squares += x.at[i] * x.at[i];
    squares = warp_reduce<kLanes>(squares, Add());
    const A rstd = ::rsqrt(squares / A(kHead) + A(eps));
    Columns y;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) y.at[i] = x.at[i] * rstd * w.at[i];
    return y;
  }
  __device__ Columns turned(const Columns& x, const Angles& angles, RopePairing pairing) const {
    Columns y;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const bool adjacent = pairing == RopePairing::adjacent;
      const A far = exchange(x.at[i], kLanes / 2), other = adjacent ? x.at[i ^ 1] : far;
      const bool second = adjacent ? i % 2 == 1 : column >= kHalf;
      y.at[i] = second ? x.at[i] * angles.cos[i] + other * angles.sin[i]
                       : x.at[i] * angles.cos[i] - other * angles.sin[i];
    }
    return y;
  }
};

// Puts `count` sums of a query's column together: sums(i) gives the i-th.
template <class A>
struct Total {
  A maximum = -INFINITY, sum = 0, o = 0;

  template <class Sums, class F>
  static __device__ Total of(int count, int query, int column, F&& sums) {
    Total total;
    for (int i = 0; i < count; ++i) {
      total.maximum = fmax(total.maximum, static_cast<const Sums*>(sums(i))->maximum[query]);
    }
    if (total.maximum == -INFINITY) return total;
    for (int i = 0; i < count; ++i) {
      const Sums* part = sums(i);
      const A factor = exponential_of_score(part->maximum[query] - total.maximum);
      total.sum += factor * part->sum[query];
      total.o += factor * part->o[query][column];
    }
    return total;
  }
};

// A block's share of the keys that its row holds, where this thread's head lies in the caches, and
// whether the token's own joins them.
template <class T, int kLanes>
struct KeyShare {
  int held, begin, end;
  bool adds;
  int64_t at, stride;  // of the first key's columns, and from key to key

  __device__ KeyShare(const CachedAttention<T>& p, int part, const HeadLane<T, kLanes>& lane) {
    constexpr int kHead = HeadLane<T, kLanes>::kHead;
    const int capacity = static_cast<int>(p.capacity);
    held = min(p.start[blockIdx.z], capacity);
    adds = p.added[blockIdx.z] > 0 && held < capacity;
    const int each = static_cast<int>(ceil_div(held, kBlocks));
    begin = min(part * each, held);
    end = min(begin + each, held);
    stride = p.options.kv_heads * kHead;
    at = blockIdx.z * p.capacity * stride + blockIdx.y * kHead + lane.column;
  }
};

// kAhead keys and values of a lane that are on their way together.
template <int kAhead, int kStep, class T, int kLanes>
struct KeysAhead {
  Pack<T> key[kAhead] = {}, value[kAhead] = {};

  __device__ void load(const CachedAttention<T>& p, const KeyShare<T, kLanes>& share, int first) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int j = first + i * kStep;
      if (j >= share.end) continue;
      key[i] = load_pack_streaming(p.keys + share.at + j * share.stride);
      value[i] = load_pack_streaming(p.values + share.at + j * share.stride);
    }
  }
};

// The token's heads into the block's memory: the queries, by a warp each, and in the block that has
// the last keys the key and the value, which also join the cache. The constructor reads weights
// alone.
template <class T, int kLanes>
class TokenHead {
 public:
  using Lane = HeadLane<T, kLanes>;

  __device__ TokenHead(const CachedAttention<T>& p, const KeyShare<T, kLanes>& share,
                       const Lane& lane)
      : weight_(warp() < kKeyWarp ? p.q_weight : p.k_weight),
        weights_(weight_ ? load_pack_constant(weight_ + lane.column) : Pack<T>{}),
        angles_(lane.angles(p, min(share.held, static_cast<int>(p.capacity) - 1))) {}

  template <class Memory>
  __device__ void make(const CachedAttention<T>& p, const KeyShare<T, kLanes>& share,
                       const Lane& lane, bool is_last, Memory& shared) const {
    const QkNormRope& o = p.options;
    const int64_t queries = o.heads / o.kv_heads, kv_head = blockIdx.y;
    const bool is_query = warp() < queries, is_key = warp() == kKeyWarp;
    if (!is_query && !(is_last && (is_key || warp() == kValueWarp))) return;
    const int64_t head = is_query ? kv_head * queries + warp()
                         : is_key ? o.heads + kv_head
                                  : o.heads + o.kv_heads + kv_head;
    const T* const token = p.packed + blockIdx.z * p.packed_stride + lane.column;
    Values<T> x = values_of(load_pack_l2(token + head * Lane::kHead));
    if (is_query || is_key) {
      if (weight_) x = lane.normed(x, weights_, o.eps);
      if (p.cos) x = lane.turned(x, angles_, o.pairing);
    }
    const Pack<T> rounded = pack_of<T>(x);
    if (threadIdx.x % kWarp >= kLanes) return;  // all groups of lanes have the same
    x = values_of(rounded);
    auto* const to = is_query ? shared.q[warp()] : is_key ? shared.key : shared.value;
#pragma unroll
    for (int i = 0; i < Lane::kColumns; ++i) to[lane.column + i] = x.at[i];
    T* const cache = is_key ? p.keys : p.values;
    if (share.adds && !is_query) store_pack(cache + share.at + share.held * share.stride, rounded);
  }

 private:
  static __device__ int warp() {
    return threadIdx.x / kWarp;
  }

  const T* weight_;
  Pack<T> weights_;
  typename Lane::Angles angles_;
};

// q . k of a query in shared memory, in units of scores.
template <class T, int kLanes>
__device__ Accumulator<T> score(const HeadLane<T, kLanes>& lane, const Accumulator<T>* q,
                                const Values<T>& k) {
  using A = Accumulator<T>;
  const A scale = ::rsqrt(A(HeadLane<T, kLanes>::kHead)) * kScoreUnit<A>;
  A dot = 0;
#pragma unroll
  for (int c = 0; c < kPackSize<T>; ++c) dot += q[lane.column + c] * k.at[c];
  return warp_reduce<kLanes>(dot, Add()) * scale;
}

// Adds the token's own key, which is the first group of lanes'.
template <int kQueries, class T, int kLanes, class Memory, class Row>
__device__ void add_own_key(const HeadLane<T, kLanes>& lane, int queries, const Memory& shared,
                            Row (&row)[kQueries]) {
  using A = Accumulator<T>;
  Values<T> k, v;
#pragma unroll
  for (int c = 0; c < kPackSize<T>; ++c) {
    k.at[c] = shared.key[lane.column + c];
    v.at[c] = shared.value[lane.column + c];
  }
  const Pack<T> own[1] = {pack_of<T>(v)};
#pragma unroll
  for (int r = 0; r < kQueries; ++r) {
    if (r >= queries) break;
    const A s = score<T>(lane, shared.q[r], k), scores[1] = {threadIdx.x < kLanes ? s : -INFINITY};
    row[r].add(scores, own);
  }
}

// What the groups of lanes have summed, as the warp's, and of all warps, as the block's.
template <int kQueries, class T, int kLanes, class Memory, class Row>
__device__ void sum_block(const HeadLane<T, kLanes>& lane, int queries, Memory& shared,
                          Row (&row)[kQueries]) {
  constexpr int kHead = HeadLane<T, kLanes>::kHead;
  auto& of_warp = shared.of_warps[threadIdx.x / kWarp];
#pragma unroll
  for (int r = 0; r < kQueries; ++r) {
    if (r >= queries) break;
#pragma unroll
    for (int mask = kLanes; mask < kWarp; mask *= 2) row[r].add(row[r].of_lane(mask));
    if (threadIdx.x % kWarp >= kLanes) continue;
    of_warp.maximum[r] = row[r].maximum;
    of_warp.sum[r] = row[r].sum;
#pragma unroll
    for (int c = 0; c < kPackSize<T>; ++c) of_warp.o[r][lane.column + c] = row[r].o[c];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < queries * kHead; i += kThreads) {
    const int r = i / kHead, column = i % kHead;
    const auto total = Total<Accumulator<T>>::template of<typename Memory::Sums>(
        kWarps, r, column, [&](int w) { return &shared.of_warps[w]; });
    if (column == 0) {
      shared.of_block.maximum[r] = total.maximum;
      shared.of_block.sum[r] = total.sum;
    }
    shared.of_block.o[r][column] = total.o;
  }
}

template <class T, int kLanes, int kQueries>
__global__ void __launch_bounds__(kThreads, 1)
    attend_to_cache(const __grid_constant__ CachedAttention<T> p) {
#if __CUDA_ARCH__ >= 900
  using A = Accumulator<T>;
  using Lane = HeadLane<T, kLanes>;
  using Memory = BlockMemory<A, kQueries, Lane::kHead>;
  constexpr int kStep = kWarps * (kWarp / kLanes), kAhead = kQueries <= 4 ? 4 : 2;
  extern __shared__ uint4 memory[];
  Memory& shared = *reinterpret_cast<Memory*>(memory);
  const cg::cluster_group cluster = cg::this_cluster();
  const int part = static_cast<int>(cluster.block_rank()), group = threadIdx.x / kLanes;
  const int queries = static_cast<int>(p.options.heads / p.options.kv_heads);
  const bool is_last = part == kBlocks - 1;
  const Lane lane;
  let_next_begin();
  const KeyShare<T, kLanes> share(p, part, lane);
  KeysAhead<kAhead, kStep, T, kLanes> ahead;
  ahead.load(p, share, share.begin + group);
  const TokenHead<T, kLanes> token(p, share, lane);

  await_kernels_before();
  token.make(p, share, lane, is_last, shared);
  __syncthreads();
  RunningSoftmax<A, Lane::kColumns> row[kQueries];
  for (int first = share.begin; first < share.end; first += kStep * kAhead) {
    if (first > share.begin) ahead.load(p, share, first + group);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      if (r >= queries) break;
      A scores[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const A s = score<T>(lane, shared.q[r], values_of(ahead.key[i]));
        scores[i] = first + i * kStep + group < share.end ? s : -INFINITY;
      }
      row[r].add(scores, ahead.value);
    }
  }
  if (is_last && share.adds && threadIdx.x < kWarp) add_own_key(lane, queries, shared, row);

  sum_block(lane, queries, shared, row);
  cluster.sync();
  for (int i = threadIdx.x; part == 0 && i < queries * Lane::kHead; i += kThreads) {
    const int r = i / Lane::kHead, column = i % Lane::kHead;
    const auto total = Total<A>::template of<typename Memory::Sums>(
        kBlocks, r, column,
        [&](int block) { return cluster.map_shared_rank(&shared.of_block, block); });
    const int64_t head = blockIdx.y * queries + r;
    p.o[(blockIdx.z * p.options.heads + head) * Lane::kHead + column] =
        static_cast<T>(total.sum > 0 ? total.o / total.sum : A(0));
  }
  cluster.sync();  // the first block reads the others' memory
#endif
}

template <class T, int kLanes, int kQueries>
void attend(const Cuda& cuda, const CachedAttention<T>& p) {
  using Memory = BlockMemory<Accumulator<T>, kQueries, HeadLane<T, kLanes>::kHead>;
  const dim3 grid(kBlocks, static_cast<unsigned>(p.options.kv_heads),
                  static_cast<unsigned>(p.batch));
  const LaunchShape shape{grid, kThreads, static_cast<int64_t>(sizeof(Memory)), kBlocks};
  XT_LAUNCH_EARLY(cuda, shape, (attend_to_cache<T, kLanes, kQueries>), p);
}

}  // namespace

template <class T>
bool cached_attention_supports(const Cuda& cuda, const CachedAttention<T>& p) {
  constexpr int64_t kMostKeys = int64_t{1} << 30, kMostGrid = 65535;
  const QkNormRope& o = p.options;
  return runs_sm90a(cuda) && o.heads / o.kv_heads <= kMostQueries && fits_lanes<T>(o.head_dim) &&
         p.batch >= 1 && p.batch <= kMostGrid && o.kv_heads <= kMostGrid &&
         p.capacity <= kMostKeys && fits_packs(p.packed_stride, p.packed) &&
         fits_packs(o.head_dim, p.keys, p.values, p.q_weight, p.k_weight);
}

template <class T>
void cached_attention_forward(const Cuda& cuda, const CachedAttention<T>& p) {
  const QkNormRope& o = p.options;
  with_lanes<T>(o.head_dim, [&](auto lanes) {
    with_room_for_rows(o.heads / o.kv_heads, [&](auto queries) {
      attend<T, decltype(lanes)::value, decltype(queries)::value>(cuda, p);
    });
  });
}

#define XT_CACHED_ATTENTION(T)                                                     \
  template bool cached_attention_supports(const Cuda&, const CachedAttention<T>&); \
  template void cached_attention_forward(const Cuda&, const CachedAttention<T>&);
XT_CACHED_ATTENTION(double)
XT_CACHED_ATTENTION(float)
XT_CACHED_ATTENTION(BFloat16)
#undef XT_CACHED_ATTENTION

}  // namespace xtrain
