// Flash attention on the ordinary arithmetic units of any GPU: every dtype, head size and layout.
//
// A block owns a tile of output and streams over the tiles that it depends on. No sum crosses
// blocks, which would need a fixed order: in the backward pass one kernel owns tiles of keys (dk,
// dv), another tiles of queries (dq), and both compute the scores again.

#include <climits>
#include <type_traits>

#include "core/cuda/reduce.h"
#include "ops/attention/flash_cuda_kernels.h"
#include "ops/attention/flash_ffma_tile.h"

namespace xtrain {
namespace {

using namespace ffma;

// Bounded by shared memory (227 KB a block) and registers (255 a thread); among what fits, the
// fastest on an H200.
template <class A, int kDim>
using ForwardShape =
    std::conditional_t<std::is_same_v<A, float>,
                       TileShape<float, kDim, 64, kDim <= 128 ? 8 : 4, kDim <= 64 ? 3 : 1>,
                       TileShape<double, kDim, kDim <= 128 ? 64 : 32, 4>>;
template <class A, int kDim>
using BackwardShape = std::conditional_t<
    std::is_same_v<A, float>,
    TileShape<float, kDim, kDim <= 128 ? 64 : 32, kDim <= 128 ? 4 : 2, kDim <= 64 ? 2 : 1>,
    TileShape<double, kDim, kDim <= 128 ? 32 : 16, kDim <= 128 ? 4 : 2>>;

// ---- what a tile of queries sees ----

// What is known of a query before its scores.
template <class A>
struct QueryRow {
  KeyRange visible;
  A log_sum, delta;  // backward only; delta is dy . o
};

// The queries from first_query of one head.
struct QueryTile {
  int64_t batch, head, first_query;
};

__device__ KeyRange visible_keys(const FlashProblem& p, const QueryTile& tile, int row) {
  const int64_t query = tile.first_query + row;
  return query < p.sizes.queries ? p.visible.of(tile.batch, query) : KeyRange{};
}

// Block b works on a tile of queries. Later ones, which see more under a causal mask, come first,
// so that no long block is left at the end.
template <class S>
__device__ QueryTile query_tile_of_block(const AttentionSizes& n) {
  const int64_t heads = n.batch * n.heads, head = blockIdx.x % heads;
  const int64_t tile = ceil_div(n.queries, S::kTile) - 1 - blockIdx.x / heads;
  return QueryTile{head / n.heads, head % n.heads, tile * S::kTile};
}

// Fills rows[i].visible; returns the range that holds all of them. All threads must call it.
template <class S, class A = typename S::A>
__device__ KeyRange load_visible(const FlashProblem& p, const QueryTile& tile, QueryRow<A>* rows) {
  __shared__ KeyRange all;
  if (threadIdx.x == 0) all = KeyRange{INT_MAX, 0};
  __syncthreads();
  if (threadIdx.x < S::kTile) {
    const KeyRange range = visible_keys(p, tile, threadIdx.x);
    rows[threadIdx.x].visible = range;
    if (range.first < range.end) {
      atomicMin(&all.first, range.first);
      atomicMax(&all.end, range.end);
    }
  }
  __syncthreads();
  return all;
}

// Keys that may be read: what lies behind key_length may be anything.
__device__ int64_t readable_keys(const VisibleKeys& visible, int64_t batch) {
  const int64_t length = visible.key_length[batch];
  return length < visible.keys ? length : visible.keys;
}

template <class T>
__device__ const T* head_rows(const T* x, const HeadStrides& strides, int64_t batch, int64_t head,
                              int64_t row) {
  return x + batch * strides.batch + head * strides.head + row * strides.time;
}

// Strides of o and dy.
__device__ HeadStrides output_strides(const AttentionSizes& n) {
  return HeadStrides{n.queries * n.heads * n.head_dim, n.heads * n.head_dim, n.head_dim};
}

// ---- forward ----

__device__ float exponential(float x) {
  return expf(x);
}
__device__ double exponential(double x) {
  return exp(x);
}

// The softmax of a thread's rows so far: the largest score, and this thread's part of the sum of
// exp(s - largest).
template <class S>
struct RunningSoftmax {
  typename S::A largest[S::kRows], sum[S::kRows];
};

// Takes a tile of products into the softmax and turns them into exp(s - largest). What was summed
// before is multiplied by what its exponentials shrink by: `out` here, the rest in the softmax.
template <class S, class A = typename S::A>
__device__ void advance_softmax(const QueryRow<A>* rows, int64_t first_key, A scale,
                                RunningSoftmax<S>& softmax, A (&s)[S::kRows][S::kColumns],
                                A (&out)[S::kRows][S::kWidth]) {
  const A nothing = -static_cast<A>(INFINITY);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const KeyRange visible = rows[thread_row<S>() + i].visible;
    A largest = softmax.largest[i];
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) {
      const int64_t key = first_key + thread_column() + j * kAcross;
      s[i][j] = visible.contains(key) ? scale * s[i][j] : nothing;
      largest = Maximum()(largest, s[i][j]);
    }
    largest = warp_reduce<kAcross>(largest, Maximum());
    // A query that has seen nothing yet has no finite maximum to subtract.
    const A shift = largest == nothing ? A{0} : largest;
    const A shrink = exponential(softmax.largest[i] - shift);
    A sum = 0;
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) sum += s[i][j] = exponential(s[i][j] - shift);
    softmax.largest[i] = largest;
    softmax.sum[i] = softmax.sum[i] * shrink + sum;
#pragma unroll
    for (int w = 0; w < S::kWidth; ++w) out[i][w] *= shrink;
  }
}

template <class S, class T, class A = typename S::A>
__device__ void store_output(const FlashForward<T>& call, const QueryTile& tile,
                             const QueryRow<A>* rows, const RunningSoftmax<S>& softmax,
                             const A (&out)[S::kRows][S::kWidth]) {
  const AttentionSizes& n = call.problem.sizes;
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const A sum = warp_reduce<kAcross>(softmax.sum[i], Add());
    const A share = sum > 0 ? A{1} / sum : A{0};
    const int row = thread_row<S>() + i;
    const int64_t query = tile.first_query + row;
    if (query >= n.queries) continue;
    T* o = call.o + ((tile.batch * n.queries + query) * n.heads + tile.head) * n.head_dim;
#pragma unroll
    for (int w = 0; w < S::kWidth; ++w) {
      const int d = element_of<S>(w);
      if (d < n.head_dim) o[d] = static_cast<T>(out[i][w] * share);
    }
    if (thread_column() > 0) continue;
    const bool sees = rows[row].visible.first < rows[row].visible.end;
    call.log_sum[(tile.batch * n.heads + tile.head) * n.queries + query] =
        sees ? softmax.largest[i] + log(sum) : static_cast<A>(INFINITY);
  }
}

template <class S, class T>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    forward_by_queries(FlashForward<T> call) {
  using A = typename S::A;
  const FlashProblem& p = call.problem;
  const int width = static_cast<int>(p.sizes.head_dim);
  const QueryTile tile = query_tile_of_block<S>(p.sizes);
  const int64_t kv_head = tile.head / p.sizes.group();
  const A scale = static_cast<A>(p.scale);
  A* q = shared_memory<A>();
  A* keys_or_values = q + S::kTileSize;
  A* scores = keys_or_values + S::kTileSize;
  __shared__ QueryRow<A> rows[S::kTile];

  load_tile<S>(head_rows(call.q, p.q, tile.batch, tile.head, tile.first_query), p.q.time,
               p.sizes.queries - tile.first_query, width, q);
  const KeyRange seen = load_visible<S>(p, tile, rows);
  RunningSoftmax<S> softmax;
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    softmax.largest[i] = -static_cast<A>(INFINITY);
    softmax.sum[i] = 0;
  }
  A out[S::kRows][S::kWidth] = {};
  for (int64_t key = seen.first / S::kTile * S::kTile; key < seen.end; key += S::kTile) {
    __syncthreads();  // the tile before has been read
    load_tile<S>(head_rows(call.k, p.k, tile.batch, kv_head, key), p.k.time, seen.end - key, width,
                 keys_or_values);
    if (p.drops) {
      draw_factors<S>(p.dropout, tile.batch, tile.head, tile.first_query, key, scores);
    }
    __syncthreads();
    A s[S::kRows][S::kColumns] = {};
    multiply_rows<S>(q, keys_or_values, s);
    __syncthreads();
    load_tile<S>(head_rows(call.v, p.v, tile.batch, kv_head, key), p.v.time, seen.end - key, width,
                 keys_or_values);
    advance_softmax<S>(rows, key, scale, softmax, s, out);
    if (p.drops) multiply_by_scores<S>(scores, s);
    store_scores<S>(s, scores);
    __syncthreads();
    add_weighted_rows<S>(scores, keys_or_values, out);
  }
  store_output<S>(call, tile, rows, softmax, out);
}

// ---- backward ----

// delta [B, H, Tq] = dy . o, a warp a row.
template <class T>
__global__ void output_products(AttentionSizes n, const T* o, const T* dy, Accumulator<T>* delta) {
  using A = Accumulator<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t warps = int64_t{gridDim.x} * (blockDim.x / kWarp);
  for (int64_t row = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / kWarp;
       row < n.batch * n.queries * n.heads; row += warps) {
    A sum = 0;
    for (int64_t d = lane; d < n.head_dim; d += kWarp) {
      sum += static_cast<A>(o[row * n.head_dim + d]) * static_cast<A>(dy[row * n.head_dim + d]);
    }
    sum = warp_reduce(sum, Add());
    const int64_t head = row % n.heads, time = row / n.heads % n.queries;
    if (lane == 0) delta[((row / n.heads / n.queries) * n.heads + head) * n.queries + time] = sum;
  }
}

template <class S, class T, class A = typename S::A>
__device__ void load_row_sums(const FlashBackward<T>& call, const A* delta, const QueryTile& tile,
                              QueryRow<A>* rows) {
  const AttentionSizes& n = call.problem.sizes;
  const int64_t query = tile.first_query + threadIdx.x;
  if (threadIdx.x >= S::kTile || query >= n.queries) return;
  const int64_t place = (tile.batch * n.heads + tile.head) * n.queries + query;
  rows[threadIdx.x].log_sum = call.log_sum[place];
  rows[threadIdx.x].delta = delta[place];
}

// q and dy of a tile.
template <class S, class T, class A = typename S::A>
__device__ void load_queries(const FlashBackward<T>& call, const QueryTile& tile, A* q, A* dy) {
  const FlashProblem& p = call.problem;
  const HeadStrides out = output_strides(p.sizes);
  const int64_t count = p.sizes.queries - tile.first_query;
  const int width = static_cast<int>(p.sizes.head_dim);
  load_tile<S>(head_rows(call.q, p.q, tile.batch, tile.head, tile.first_query), p.q.time, count,
               width, q);
  load_tile<S>(head_rows(call.dy, out, tile.batch, tile.head, tile.first_query), out.time, count,
               width, dy);
}

// k and v from first_key.
template <class S, class T, class A = typename S::A>
__device__ void load_keys(const FlashBackward<T>& call, int64_t batch, int64_t kv_head,
                          int64_t first_key, A* k, A* v) {
  const FlashProblem& p = call.problem;
  const int64_t count = readable_keys(p.visible, batch) - first_key;
  const int width = static_cast<int>(p.sizes.head_dim);
  load_tile<S>(head_rows(call.k, p.k, batch, kv_head, first_key), p.k.time, count, width, k);
  load_tile<S>(head_rows(call.v, p.v, batch, kv_head, first_key), p.v.time, count, width, v);
}

// From q . k and dy . v to the dropped probabilities s = p f and ds = scale p (f dp - delta).
// `scores` holds the factors f where there is dropout.
template <class S, class A = typename S::A>
__device__ void score_gradients(const FlashProblem& p, const QueryRow<A>* rows, int64_t first_key,
                                A* scores, A (&s)[S::kRows][S::kColumns],
                                A (&ds)[S::kRows][S::kColumns]) {
  const A scale = static_cast<A>(p.scale);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const QueryRow<A> row = rows[thread_row<S>() + i];
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) {
      const bool visible = row.visible.contains(first_key + thread_column() + j * kAcross);
      const A probability =
          exponential(visible ? scale * s[i][j] - row.log_sum : -static_cast<A>(INFINITY));
      const A factor = p.drops ? own_score<S>(scores, i, j) : A{1};
      ds[i][j] = visible ? scale * probability * (factor * ds[i][j] - row.delta) : A{0};
      s[i][j] = probability * factor;
    }
  }
}

// Whether a query of the tile sees a key of [first_key, end_key); fills rows[i].visible. All
// threads must call it, and none returns before all have.
template <class S, class A = typename S::A>
__device__ bool tile_sees(const FlashProblem& p, const QueryTile& tile, int64_t first_key,
                          int64_t end_key, QueryRow<A>* rows) {
  bool sees = false;
  if (threadIdx.x < S::kTile) {
    const KeyRange range = visible_keys(p, tile, threadIdx.x);
    rows[threadIdx.x].visible = range;
    sees = range.first < end_key && first_key < range.end;
  }
  return __syncthreads_or(sees);
}

template <class S, class T>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    backward_by_keys(FlashBackward<T> call, const Accumulator<T>* delta) {
  using A = typename S::A;
  const FlashProblem& p = call.problem;
  const AttentionSizes& n = p.sizes;
  const int width = static_cast<int>(n.head_dim);
  const int64_t heads = n.batch * n.kv_heads;
  const int64_t batch = blockIdx.x % heads / n.kv_heads, kv_head = blockIdx.x % n.kv_heads;
  const int64_t first_key = blockIdx.x / heads * S::kTile;
  A* k = shared_memory<A>();
  A *v = k + S::kTileSize, *q = v + S::kTileSize, *dy = q + S::kTileSize;
  A* scores = dy + S::kTileSize;
  __shared__ QueryRow<A> rows[S::kTile];

  load_keys<S>(call, batch, kv_head, first_key, k, v);
  A dk[S::kRows][S::kWidth] = {}, dv[S::kRows][S::kWidth] = {};
  for (int64_t head = kv_head * n.group(); head < (kv_head + 1) * n.group(); ++head) {
    for (int64_t query = 0; query < n.queries; query += S::kTile) {
      const QueryTile tile{batch, head, query};
      if (!tile_sees<S>(p, tile, first_key, first_key + S::kTile, rows)) continue;
      load_row_sums<S>(call, delta, tile, rows);
      load_queries<S>(call, tile, q, dy);
      if (p.drops) draw_factors<S>(p.dropout, batch, head, query, first_key, scores);
      __syncthreads();
      A s[S::kRows][S::kColumns] = {}, ds[S::kRows][S::kColumns] = {};
      multiply_rows<S>(q, k, s);
      multiply_rows<S>(dy, v, ds);
      score_gradients<S>(p, rows, first_key, scores, s, ds);
      store_scores<S>(s, scores);
      __syncthreads();
      add_weighted_columns<S>(scores, dy, dv);
      __syncthreads();
      store_scores<S>(ds, scores);
      __syncthreads();
      add_weighted_columns<S>(scores, q, dk);
    }
  }
  if (call.dk.data) store_gradient<S, T>(call.dk, batch, kv_head, first_key, n.keys, width, dk);
  if (call.dv.data) store_gradient<S, T>(call.dv, batch, kv_head, first_key, n.keys, width, dv);
}

template <class S, class T>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    backward_by_queries(FlashBackward<T> call, const Accumulator<T>* delta) {
  using A = typename S::A;
  const FlashProblem& p = call.problem;
  const QueryTile tile = query_tile_of_block<S>(p.sizes);
  A* q = shared_memory<A>();
  A *dy = q + S::kTileSize, *k = dy + S::kTileSize, *v = k + S::kTileSize;
  A* scores = v + S::kTileSize;
  __shared__ QueryRow<A> rows[S::kTile];

  load_queries<S>(call, tile, q, dy);
  load_row_sums<S>(call, delta, tile, rows);
  const KeyRange seen = load_visible<S>(p, tile, rows);
  A dq[S::kRows][S::kWidth] = {};
  for (int64_t key = seen.first / S::kTile * S::kTile; key < seen.end; key += S::kTile) {
    __syncthreads();  // the tile before has been read
    load_keys<S>(call, tile.batch, tile.head / p.sizes.group(), key, k, v);
    if (p.drops) {
      draw_factors<S>(p.dropout, tile.batch, tile.head, tile.first_query, key, scores);
    }
    __syncthreads();
    A s[S::kRows][S::kColumns] = {}, ds[S::kRows][S::kColumns] = {};
    multiply_rows<S>(q, k, s);
    multiply_rows<S>(dy, v, ds);
    score_gradients<S>(p, rows, key, scores, s, ds);
    store_scores<S>(ds, scores);
    __syncthreads();
    add_weighted_rows<S>(scores, k, dq);
  }
  store_gradient<S, T>(call.dq, tile.batch, tile.head, tile.first_query, p.sizes.queries,
                       static_cast<int>(p.sizes.head_dim), dq);
}

// ---- launches ----

// Calls f with the smallest head size of the kernels that holds head_dim.
template <class F>
void with_head_size(int64_t head_dim, F&& f) {
  if (head_dim <= 32) return f(std::integral_constant<int, 32>{});
  if (head_dim <= 64) return f(std::integral_constant<int, 64>{});
  if (head_dim <= 128) return f(std::integral_constant<int, 128>{});
  f(std::integral_constant<int, 256>{});
}

template <class S>
LaunchShape tile_launch(int64_t heads, int64_t rows, int64_t tiles_in_memory) {
  const int64_t elements = tiles_in_memory * S::kTileSize + S::kScoreSize;
  return LaunchShape{dim3(static_cast<unsigned>(heads * ceil_div(rows, S::kTile))),
                     dim3(S::kThreads), elements * static_cast<int64_t>(sizeof(typename S::A))};
}

}  // namespace

template <class T>
void ffma_forward(const Cuda& cuda, const FlashForward<T>& call) {
  const AttentionSizes& n = call.problem.sizes;
  with_head_size(n.head_dim, [&](auto head_size) {
    using S = ForwardShape<Accumulator<T>, head_size()>;
    XT_LAUNCH(cuda, (tile_launch<S>(n.batch * n.heads, n.queries, 2)), (forward_by_queries<S, T>),
              call);
  });
}

template <class T>
void ffma_backward(const Cuda& cuda, const FlashBackward<T>& call) {
  const AttentionSizes& n = call.problem.sizes;
  Tensor delta = empty(cuda.ctx, {n.batch, n.heads, n.queries}, dtype_of<Accumulator<T>>);
  Accumulator<T>* products = delta.mutable_data<Accumulator<T>>();
  constexpr int kThreads = 256;
  XT_LAUNCH(cuda,
            (LaunchShape{grid_for(n.batch * n.heads * n.queries, kThreads / kWarp), kThreads}),
            (output_products<T>), n, call.o, call.dy, products);
  with_head_size(n.head_dim, [&](auto head_size) {
    using S = BackwardShape<Accumulator<T>, head_size()>;
    if (call.dk.data || call.dv.data) {
      XT_LAUNCH(cuda, (tile_launch<S>(n.batch * n.kv_heads, n.keys, 4)), (backward_by_keys<S, T>),
                call, products);
    }
    if (call.dq.data) {
      XT_LAUNCH(cuda, (tile_launch<S>(n.batch * n.heads, n.queries, 4)),
                (backward_by_queries<S, T>), call, products);
    }
  });
}

#define XT_FLASH_FFMA(T)                                           \
  template void ffma_forward(const Cuda&, const FlashForward<T>&); \
  template void ffma_backward(const Cuda&, const FlashBackward<T>&);
XT_FLASH_FFMA(double)
XT_FLASH_FFMA(float)
XT_FLASH_FFMA(BFloat16)
#undef XT_FLASH_FFMA

}  // namespace xtrain
