// Flash attention of few queries over many keys, as when a model writes: a token's query would
// occupy one block a head and leave the rest of the GPU idle. Here the keys that the queries see
// are split evenly over blocks, each with its own softmax, and a second kernel puts the parts
// together in their order ("flash decoding", Dao et al., 2023).
//
//   part s of a row:  m_s = max of its scores, l_s = sum exp(score - m_s), o_s = sum exp(..) v
//   o = sum_s exp(m_s - m) o_s / sum_s exp(m_s - m) l_s,  m = max_s m_s
//
// A block reads its keys and values once for all query heads that share them. Lanes lie along the
// head: a key is one pack of 16 bytes in each of kLanes neighbouring lanes. How many parts there
// are follows from the capacity of the keys, so that a captured step serves every length; where
// they begin, from the keys that are seen.

#include <algorithm>

#include "core/cuda/few_rows.h"
#include "core/cuda/launch.h"
#include "core/cuda/pack.h"
#include "core/cuda/reduce.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "ops/attention/head_lanes_cuda.h"
#include "ops/attention/running_softmax_cuda.h"

namespace xtrain {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kMostRows = kMostFewRows;  // queries times the heads that share a key
constexpr int64_t kLeastKeys = 64;  // of a part: fewer cost more to put together than they save

// The rows of a key head: `queries` of each head of the group, the head first.
__host__ __device__ inline int64_t rows_of(const AttentionSizes& n) {
  return n.group() * n.queries;
}

template <class A>
struct Part {
  A maximum, sum;
};

// Where the parts of each row of [B, H, Tq] lie.
template <class A>
struct Parts {
  int count;
  Part<A>* softmax;  // [B, H, Tq, count]
  A* o;              // [B, H, Tq, count, D]
};

// The keys of a part: some row of the key head sees them.
__device__ KeyRange keys_of_part(const FlashProblem& p, int64_t batch, int part, int parts) {
  int first = INT_MAX, end = 0;
  for (int64_t t = 0; t < p.sizes.queries; ++t) {
    const KeyRange range = p.visible.of(batch, t);
    if (range.first == range.end) continue;
    first = min(first, range.first);
    end = max(end, range.end);
  }
  if (first >= end) return KeyRange{};
  const int each = static_cast<int>(ceil_div(end - first, parts));
  return KeyRange{min(first + part * each, end), min(first + (part + 1) * each, end)};
}

template <class T, int kLanes, int kRows>
__global__ void __launch_bounds__(kThreads)
    attend_to_part(const __grid_constant__ FlashForward<T> call, Parts<Accumulator<T>> parts) {
  using A = Accumulator<T>;
  constexpr int kColumns = kPackSize<T>, kGroups = kWarp / kLanes, kStep = kWarps * kGroups;
  constexpr int kAhead = 4;  // keys of a lane that are on their way together
  using Row = RunningSoftmax<A, kColumns>;
  const FlashProblem& p = call.problem;
  const int64_t part = blockIdx.x, kv_head = blockIdx.y, batch = blockIdx.z;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int column = lane % kLanes * kColumns, group = warp * kGroups + lane / kLanes;
  const int rows = static_cast<int>(rows_of(p.sizes));
  const int queries = static_cast<int>(p.sizes.queries);
  let_next_begin();
  await_kernels_before();

  Values<T> q[kRows];
  KeyRange visible[kRows];
  Row row[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) continue;
    const int64_t head = kv_head * p.sizes.group() + r / queries, query = r % queries;
    q[r] = values_of(
        load_pack(call.q + batch * p.q.batch + query * p.q.time + head * p.q.head + column));
    visible[r] = p.visible.of(batch, query);
  }

  const T* const k = call.k + batch * p.k.batch + kv_head * p.k.head + column;
  const T* const v = call.v + batch * p.v.batch + kv_head * p.v.head + column;
  const KeyRange keys = keys_of_part(p, batch, static_cast<int>(part), parts.count);
  const A scale = static_cast<A>(p.scale) * kScoreUnit<A>;
  for (int first = keys.first; first < keys.end; first += kStep * kAhead) {
    Pack<T> key[kAhead], value[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t j = min(first + i * kStep + group, keys.end - 1);
      key[i] = load_pack_streaming(k + j * p.k.time);
      value[i] = load_pack_streaming(v + j * p.v.time);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) continue;
      A score[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int j = first + i * kStep + group;
        const Values<T> x = values_of(key[i]);
        A dot = 0;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) dot += q[r].at[c] * x.at[c];
        dot = warp_reduce<kLanes>(dot, Add());
        score[i] = j < keys.end && visible[r].contains(j) ? dot * scale : -INFINITY;
      }
      row[r].add(score, value);
    }
  }

  __shared__ Row of_warps[kWarps][kLanes];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma unroll
    for (int mask = kLanes; mask < kWarp; mask *= 2) row[r].add(row[r].of_lane(mask));
    if (lane < kLanes) of_warps[warp][lane] = row[r];
    __syncthreads();
    if (warp == 0 && lane < kLanes) {
      Row all = of_warps[0][lane];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) all.add(of_warps[w][lane]);
      const int64_t head = kv_head * p.sizes.group() + r / queries, query = r % queries;
      const int64_t at = ((batch * p.sizes.heads + head) * queries + query) * parts.count + part;
      if (lane == 0) parts.softmax[at] = Part<A>{all.maximum, all.sum};
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        parts.o[at * p.sizes.head_dim + column + c] = all.o[c];
      }
    }
    __syncthreads();  // the next row may write
  }
}

// A block for each row, a thread for each column of its output.
template <class T>
__global__ void combine_parts(const __grid_constant__ FlashForward<T> call,
                              Parts<Accumulator<T>> parts) {
  using A = Accumulator<T>;
  const AttentionSizes& n = call.problem.sizes;
  const int64_t row = blockIdx.x, query = row % n.queries, head = row / n.queries % n.heads;
  const int64_t batch = row / n.queries / n.heads;
  let_next_begin();
  await_kernels_before();
  const Part<A>* const softmax = parts.softmax + row * parts.count;
  const A* const of_parts = parts.o + row * parts.count * n.head_dim + threadIdx.x;
  A maximum = -INFINITY, sum = 0, o = 0;
#pragma unroll 8
  for (int s = 0; s < parts.count; ++s) maximum = fmax(maximum, softmax[s].maximum);
  const int count = maximum > -INFINITY ? parts.count : 0;
#pragma unroll 8
  for (int s = 0; s < count; ++s) {
    const A factor = exponential_of_score(softmax[s].maximum - maximum);
    sum += factor * softmax[s].sum;
    o += factor * of_parts[s * n.head_dim];
  }
  const int64_t at = (batch * n.queries + query) * n.heads + head;
  call.o[at * n.head_dim + threadIdx.x] = static_cast<T>(sum > 0 ? o / sum : A(0));
  if (threadIdx.x == 0) {
    call.log_sum[row] = sum > 0 ? maximum / kScoreUnit<A> + log(sum) : A(INFINITY);
  }
}

template <class T, int kLanes, int kRows>
void attend(const Cuda& cuda, const FlashForward<T>& call) {
  using A = Accumulator<T>;
  const AttentionSizes& n = call.problem.sizes;
  const int64_t heads = n.batch * n.kv_heads, rows = n.batch * n.heads * n.queries;
  const int64_t filling = ceil_div(2 * gpu_of(cuda).multiprocessors, heads);
  const int64_t count = std::clamp<int64_t>(ceil_div(n.keys, kLeastKeys), 1, filling);
  Tensor softmax = empty(cuda.ctx, {rows, count, 2}, dtype_of<A>);
  Tensor o = empty(cuda.ctx, {rows, count, n.head_dim}, dtype_of<A>);
  const Parts<A> parts{static_cast<int>(count),
                       reinterpret_cast<Part<A>*>(softmax.mutable_data<A>()), o.mutable_data<A>()};
  const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(n.kv_heads),
                  static_cast<unsigned>(n.batch));
  XT_LAUNCH_EARLY(cuda, (LaunchShape{grid, kThreads}), (attend_to_part<T, kLanes, kRows>), call,
                  parts);
  XT_LAUNCH_EARLY(
      cuda,
      (LaunchShape{dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(n.head_dim))}),
      combine_parts<T>, call, parts);
}

template <class T>
bool rows_are_packs(const T* x, const HeadStrides& strides, int64_t batch, int64_t time,
                    int64_t heads) {
  const auto fits = [](int64_t size, int64_t stride) {
    return size <= 1 || stride % kPackSize<T> == 0;
  };
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && fits(batch, strides.batch) &&
         fits(time, strides.time) && fits(heads, strides.head);
}

}  // namespace

template <class T>
bool split_keys_supports(const FlashForward<T>& call) {
  constexpr int64_t kMostKeys = int64_t{1} << 30, kMostBlocks = 65535;
  const FlashProblem& p = call.problem;
  const AttentionSizes& n = p.sizes;
  return rows_of(n) >= 1 && rows_of(n) <= kMostRows && n.batch >= 1 && !p.drops &&
         fits_lanes<T>(n.head_dim) && n.keys <= kMostKeys && n.batch <= kMostBlocks &&
         n.kv_heads <= kMostBlocks && rows_are_packs(call.q, p.q, n.batch, n.queries, n.heads) &&
         rows_are_packs(call.k, p.k, n.batch, n.keys, n.kv_heads) &&
         rows_are_packs(call.v, p.v, n.batch, n.keys, n.kv_heads);
}

template <class T>
void split_keys_forward(const Cuda& cuda, const FlashForward<T>& call) {
  const AttentionSizes& n = call.problem.sizes;
  with_lanes<T>(n.head_dim, [&](auto lanes) {
    with_room_for_rows(rows_of(n), [&](auto rows) {
      attend<T, decltype(lanes)::value, decltype(rows)::value>(cuda, call);
    });
  });
}

#define XT_SPLIT_KEYS(T)                                     \
  template bool split_keys_supports(const FlashForward<T>&); \
  template void split_keys_forward(const Cuda&, const FlashForward<T>&);
XT_SPLIT_KEYS(double)
XT_SPLIT_KEYS(float)
XT_SPLIT_KEYS(BFloat16)
#undef XT_SPLIT_KEYS

}  // namespace xtrain
