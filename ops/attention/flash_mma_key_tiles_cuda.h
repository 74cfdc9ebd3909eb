#pragma once
// What the key kernels of flash attention's backward pass read, and in which order: a tile of keys
// for the whole life of a block, and tiles of queries that come and go.

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_backward_cuda.h"

#if defined(__CUDACC__)

namespace xtrain::flash_mma {

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

}  // namespace xtrain::flash_mma

#endif
