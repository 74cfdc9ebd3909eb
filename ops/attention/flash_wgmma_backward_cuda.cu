// Flash attention backward on the tensor cores of sm_90a by wgmma: three kernels that share no sum,
// so that the order of every addition is fixed.
//
//   terms          log2_sum = log_sum log2(e)      delta = dy . o
//   query kernel   p = 2^(factor q k^T - log2_sum)      ds = p (dy v^T - delta)     dq += ds k
//   key kernel     the same, transposed                 dv += p^T dy                dk += ds^T q
//
// Scores are computed twice: seven products where a single kernel needs five. In return no kernel
// adds to what another block has written, and none of them is limited by shared memory.

#include <type_traits>

#include "core/allocator.h"
#include "core/cuda/hopper/support.h"
#include "core/cuda/hopper/wgmma.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "ops/attention/flash_wgmma_backward_cuda.h"

namespace xtrain {
namespace {

using namespace flash_wgmma;

constexpr int kTermQueries = 64, kTermLanes = 4;  // of a block; that share a query

// dy . o of one query, in its four lanes.
template <int kWidth>
__device__ float dot_of_rows(const BFloat16* x, const BFloat16* y) {
  Pack<BFloat16> a[kWidth / 32], b[kWidth / 32];
#pragma unroll
  for (int i = 0; i < kWidth / 32; ++i) {
    a[i] = load_pack(x + i * 32 + threadIdx.x % kTermLanes * 8);
    b[i] = load_pack(y + i * 32 + threadIdx.x % kTermLanes * 8);
  }
  float dot = 0.0f;
#pragma unroll
  for (int i = 0; i < kWidth / 32; ++i) {
    const Values<BFloat16> left = values_of(a[i]), right = values_of(b[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) dot += left.at[j] * right.at[j];
  }
  return flash_mma::row_sum(dot);
}

__device__ SeenKeys from_lane_across(const SeenKeys& seen, int distance) {
  const auto exchange = [&](int x) { return __shfl_xor_sync(flash_mma::kAllLanes, x, distance); };
  SeenKeys other;
  other.any_first = exchange(seen.any_first);
  other.any_end = exchange(seen.any_end);
  other.all_first = exchange(seen.all_first);
  other.all_end = exchange(seen.all_end);
  return other;
}

// Once for each sequence, by the first warps of a block.
__device__ void store_ranges(const VisibleKeys& visible, const QueryTerms& terms, int batch,
                             int first_query) {
  if (threadIdx.x >= kTermQueries) return;
  const int query = first_query + threadIdx.x;
  const bool exists = query < visible.queries;
  const KeyRange range = exists ? visible.of(batch, query) : KeyRange{};
  terms.ranges[int64_t{batch} * terms.padded + query] = range;
  // A query of the padding must not count as one that sees nothing.
  SeenKeys seen;
  if (exists) seen.add(range);
#pragma unroll
  for (int distance = 1; distance < kSeenQueries; distance *= 2) {
    seen.add(from_lane_across(seen, distance));
  }
  if (threadIdx.x % kSeenQueries == 0) {
    terms.seen[(int64_t{batch} * terms.padded + query) / kSeenQueries] = seen;
  }
}

// A block does kTermQueries queries of one head; heads come next to each other, as in memory.
template <int kWidth>
__global__ void __launch_bounds__(kTermQueries* kTermLanes)
    query_terms(const FlashBackward<BFloat16> call, const QueryTerms terms) {
  begin_behind_others();
  const unsigned heads = static_cast<unsigned>(call.problem.sizes.heads);
  const unsigned head = blockIdx.x % heads, rest = blockIdx.x / heads;
  const unsigned tiles = terms.padded / kTermQueries;
  const int batch = rest / tiles, first_query = rest % tiles * kTermQueries;
  if (head == 0) store_ranges(call.problem.visible, terms, batch, first_query);
  const int64_t query = first_query + threadIdx.x / kTermLanes,
                queries = call.problem.sizes.queries;
  const bool exists = query < queries;
  const int64_t row = batch * queries + (exists ? query : queries - 1);
  const int64_t start = (row * heads + head) * kWidth;
  const float delta = dot_of_rows<kWidth>(call.o + start, call.dy + start);
  if (threadIdx.x % kTermLanes != 0) return;
  const int64_t of_head = int64_t{batch} * heads + head;
  terms.delta[of_head * terms.padded + query] = exists ? delta : 0.0f;
  terms.log2_sum[of_head * terms.padded + query] =
      exists ? kLog2E * call.log_sum[of_head * queries + query] : INFINITY;
}

// Calls f(head size as a constant).
template <class F>
void with_head_dim(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 96:
      return f(std::integral_constant<int, 96>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    case 256:
      return f(std::integral_constant<int, 256>{});
  }
}

}  // namespace

std::string wgmma_obstacle(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  const FlashProblem& p = call.problem;
  const TokenHeads mapped[] = {queries_of(p, call.q), keys_of(p, call.k), values_of(p, call.v),
                               outputs_of(p, call.o), outputs_of(p, call.dy)};
  return obstacle(cuda, p, mapped);
}

void wgmma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  check_no_obstacle(wgmma_obstacle(cuda, call));
  const AttentionSizes& n = call.problem.sizes;
  const int64_t padded = ceil_div(n.queries, kQueryPadding) * kQueryPadding;
  Tensor log2_sum = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  Tensor delta = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  Tensor ranges = empty(cuda.ctx, {n.batch, padded, sizeof(KeyRange) / 4}, Dtype::i32);
  Tensor seen = empty(cuda.ctx, {n.batch, padded / kSeenQueries, sizeof(SeenKeys) / 4}, Dtype::i32);
  const QueryTerms terms{static_cast<int>(padded), log2_sum.mutable_data<float>(),
                         delta.mutable_data<float>(),
                         reinterpret_cast<KeyRange*>(ranges.mutable_data<int32_t>()),
                         reinterpret_cast<SeenKeys*>(seen.mutable_data<int32_t>())};
  with_head_dim(n.head_dim, [&](auto head_dim) {
    const int64_t blocks = n.batch * n.heads * (padded / kTermQueries);
    XT_LAUNCH_AHEAD(cuda,
                    (LaunchShape{dim3(static_cast<unsigned>(blocks)), kTermQueries * kTermLanes}),
                    query_terms<head_dim.value>, call, terms);
  });
  if (call.dq.data) query_gradients(cuda, call, terms);
  if (call.dk.data || call.dv.data) key_gradients(cuda, call, terms);
}

}  // namespace xtrain
