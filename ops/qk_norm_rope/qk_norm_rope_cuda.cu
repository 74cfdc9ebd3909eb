#include <algorithm>

#include "core/cuda/pairs.h"
#include "core/cuda/reduce.h"
#include "core/error.h"
#include "ops/qk_norm_rope/qk_norm_rope_kernels.h"

namespace xtrain {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;  // of the backward, which runs as one wave

// A head is the work of kLanes neighbouring threads, a lane of which holds up to kRuns runs of
// kPairs pairs: a row stays in registers between its statistics and its result.
template <int kPairsOfRun, int kLanesOfHead, int kRunsOfLane>
struct Layout {
  static constexpr int kPairs = kPairsOfRun, kLanes = kLanesOfHead, kRuns = kRunsOfLane;
  static constexpr int kHeads = kThreads / kLanes;            // that a block does at a time
  static constexpr int kMostPairs = kPairs * kLanes * kRuns;  // of a head
};

// f(r, i) for the lane's run r and its first pair i.
template <class L, class F>
__device__ void for_runs(int64_t half, F f) {
#pragma unroll
  for (int r = 0; r < L::kRuns; ++r) {
    const int64_t i = (threadIdx.x % L::kLanes + r * L::kLanes) * L::kPairs;
    if (i < half) f(r, i);
  }
}

template <class A, int kPairs>
__device__ A dot(const Pairs<A, kPairs>& a, const Pairs<A, kPairs>& b) {
  A sum = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    sum += a.first.at[j] * b.first.at[j] + a.second.at[j] * b.second.at[j];
  }
  return sum;
}

// a factor b.
template <class A, int kPairs>
__device__ Pairs<A, kPairs> product(const Pairs<A, kPairs>& a, A factor,
                                    const Pairs<A, kPairs>& b) {
  Pairs<A, kPairs> y;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    y.first.at[j] = a.first.at[j] * factor * b.first.at[j];
    y.second.at[j] = a.second.at[j] * factor * b.second.at[j];
  }
  return y;
}

// One head's way forward. All loads stand before the sum: its lanes wait for the slowest anyway.
template <class L, bool kAdjacent, class T>
__device__ void forward_head(const QkNormRopeForward<T>& p, int64_t token, int64_t head) {
  using A = Accumulator<T>;
  const QkNormRope& o = p.options;
  const int64_t half = o.head_dim / 2, turning = o.heads + o.kv_heads;
  const T* source = p.x + token * p.x_stride + head * o.head_dim;
  const bool within = head < turning;
  const T* weight = head < o.heads ? p.q_weight : p.k_weight;
  Pairs<A, L::kPairs> x[L::kRuns], w[L::kRuns];
  Angles<A, L::kPairs> angles[L::kRuns];
  A squares = 0;
  if (within) {
    for_runs<L>(half, [&](int r, int64_t i) {
      x[r] = load_pairs<kAdjacent, L::kPairs>(source, half, i);
      if (weight) w[r] = load_pairs<kAdjacent, L::kPairs>(weight, half, i);
      const int64_t at = p.angles.row(token) * half + i;
      angles[r] = load_angles<L::kPairs>(p.angles.cos + at, p.angles.sin + at);
      squares += dot(x[r], x[r]);
    });
  }
  if (p.rstd) squares = warp_reduce<L::kLanes>(squares, Add());
  if (!within) return;
  const A rstd = ::rsqrt(squares / A(o.head_dim) + A(o.eps));
  if (weight && threadIdx.x % L::kLanes == 0) p.rstd[token * turning + head] = rstd;
  for_runs<L>(half, [&](int r, int64_t i) {
    if (weight) x[r] = product(x[r], rstd, w[r]);
    store_pairs<kAdjacent>(p.y + token * o.width() + head * o.head_dim, half, i,
                           turned(x[r], angles[r]));
  });
}

// A block does the heads of one token at a time.
template <class L, bool kAdjacent, class T>
__global__ void __launch_bounds__(kThreads, L::kRuns > 1 ? 1 : 4)
    forward_tokens(QkNormRopeForward<T> p) {
  begin_behind_others();
  const int64_t heads = p.options.heads + p.options.kv_heads;
  const int64_t at_a_time = blockDim.x / L::kLanes;
  for (int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    for (int64_t first = 0; first < heads; first += at_a_time) {
      forward_head<L, kAdjacent>(p, token, first + threadIdx.x / L::kLanes);
    }
  }
}

// The gradients of one head on its way back; `sums` gathers the weight's.
template <class L, bool kAdjacent, class T>
__device__ void backward_head(const QkNormRopeBackward<T>& p, bool within, int64_t token,
                              int64_t head, const T* weight,
                              Pairs<Accumulator<T>, L::kPairs> (&sums)[L::kRuns]) {
  using A = Accumulator<T>;
  using P = Pairs<A, L::kPairs>;
  const QkNormRope& o = p.options;
  const int64_t half = o.head_dim / 2, column = head * o.head_dim;
  const A rstd = within && weight ? p.rstd[token * (o.heads + o.kv_heads) + head] : A(0);
  P g[L::kRuns], x_hat[L::kRuns];
  A sum = 0;
  if (within) {
    for_runs<L>(half, [&](int r, int64_t i) {
      const int64_t at = p.angles.row(token) * half + i;
      g[r] =
          turned_back(load_pairs<kAdjacent, L::kPairs>(p.dy + token * o.width() + column, half, i),
                      load_angles<L::kPairs>(p.angles.cos + at, p.angles.sin + at));
      if (!weight) return;
      const P x = load_pairs<kAdjacent, L::kPairs>(p.x + token * p.x_stride + column, half, i);
      const P w = load_pairs<kAdjacent, L::kPairs>(weight, half, i);
#pragma unroll
      for (int j = 0; j < L::kPairs; ++j) {
        x_hat[r].first.at[j] = x.first.at[j] * rstd;
        x_hat[r].second.at[j] = x.second.at[j] * rstd;
        sums[r].first.at[j] += g[r].first.at[j] * x_hat[r].first.at[j];
        sums[r].second.at[j] += g[r].second.at[j] * x_hat[r].second.at[j];
        g[r].first.at[j] *= w.first.at[j];
        g[r].second.at[j] *= w.second.at[j];
      }
      sum += dot(g[r], x_hat[r]);
    });
  }
  if (!p.dx) return;
  const A mean = weight ? warp_reduce<L::kLanes>(sum, Add()) / A(o.head_dim) : A(0);
  if (!within) return;
  for_runs<L>(half, [&](int r, int64_t i) {
    if (weight) {
#pragma unroll
      for (int j = 0; j < L::kPairs; ++j) {
        g[r].first.at[j] = rstd * (g[r].first.at[j] - x_hat[r].first.at[j] * mean);
        g[r].second.at[j] = rstd * (g[r].second.at[j] - x_hat[r].second.at[j] * mean);
      }
    }
    store_pairs<kAdjacent>(p.dx + token * p.dx_stride + column, half, i, g[r]);
  });
}

// target [D] = the sums of the block's heads, added in the order of the heads.
template <class L, bool kAdjacent, class A>
__device__ void write_block_sum(int64_t head_dim, const Pairs<A, L::kPairs> (&sums)[L::kRuns],
                                A* target) {
  __shared__ A scratch[L::kHeads * 2 * L::kMostPairs];
  const int64_t half = head_dim / 2;
  A* own = scratch + threadIdx.x / L::kLanes * head_dim;
  for_runs<L>(half, [&](int r, int64_t i) {
    for (int j = 0; j < L::kPairs; ++j) {
      own[first_of_pair<kAdjacent>(i + j)] = sums[r].first.at[j];
      own[second_of_pair<kAdjacent>(i + j, half)] = sums[r].second.at[j];
    }
  });
  __syncthreads();
  for (int64_t d = threadIdx.x; d < head_dim; d += kThreads) {
    A sum = 0;
    for (int h = 0; h < L::kHeads; ++h) sum += scratch[h * head_dim + d];
    target[d] = sum;
  }
  __syncthreads();  // scratch may be written again
}

// Heads [first_head, first_head + heads) of the block's tokens, which are every gridDim.x-th.
template <class L, bool kAdjacent, class T>
__device__ void backward_group(const QkNormRopeBackward<T>& p, int64_t first_head, int64_t heads,
                               const T* weight, Accumulator<T>* dweight) {
  Pairs<Accumulator<T>, L::kPairs> sums[L::kRuns] = {};
  const int64_t tokens = ceil_div(p.tokens - blockIdx.x, gridDim.x);
  for (int64_t first = 0; first < tokens * heads; first += L::kHeads) {
    const int64_t i = first + threadIdx.x / L::kLanes;
    const int64_t token = blockIdx.x + i / heads * gridDim.x;
    backward_head<L, kAdjacent>(p, i < tokens * heads, token, first_head + i % heads, weight, sums);
  }
  if (dweight) {
    write_block_sum<L, kAdjacent>(p.options.head_dim, sums,
                                  dweight + blockIdx.x * p.options.head_dim);
  }
}

template <class L, bool kAdjacent, class T>
__global__ void __launch_bounds__(kThreads, L::kRuns > 1 ? 1 : 2)
    backward_tokens(QkNormRopeBackward<T> p) {
  begin_behind_others();
  const QkNormRope& o = p.options;
  backward_group<L, kAdjacent>(p, 0, o.heads, p.q_weight, p.dq_weight);
  backward_group<L, kAdjacent>(p, o.heads, o.kv_heads, p.k_weight, p.dk_weight);
}

// Calls f with the layout for heads of head_dim elements; `packs`: whether they are read in packs.
template <class T, class F>
void with_layout(int64_t head_dim, bool packs, F&& f) {
  constexpr int kPack = kPackSize<T>;
  if constexpr (!std::is_same_v<T, double>) {  // f64 is for checks, not for speed
    if (packs && head_dim <= 64) return f(Layout<kPack, 32 / kPack, 1>());
    if (packs && head_dim <= 128) return f(Layout<kPack, 64 / kPack, 1>());
    if (packs && head_dim <= 256) return f(Layout<kPack, 128 / kPack, 1>());
  }
  using Any = Layout<1, kWarp, 8>;
  check(head_dim <= 2 * Any::kMostPairs, "qk_norm_rope: head_dim must be at most ",
        2 * Any::kMostPairs, " on a GPU; got ", head_dim);
  f(Any());
}

template <class T, class... Pointers>
bool heads_fit_packs(const QkNormRope& o, const TokenAngles<Accumulator<T>>& angles,
                     const Pointers*... rows) {
  return fits_packs(o.head_dim / 2, static_cast<const T*>(rows)...) &&
         fits_packs(0, angles.cos, angles.sin);
}

}  // namespace

template <class T>
void qk_norm_rope_forward(const Cuda& cuda, const QkNormRopeForward<T>& p) {
  const QkNormRope& o = p.options;
  const bool packs =
      heads_fit_packs<T>(o, p.angles, p.q_weight, p.k_weight, p.y) && fits_packs(p.x_stride, p.x);
  with_layout<T>(o.head_dim, packs, [&](auto layout) {
    using L = decltype(layout);
    const int64_t lanes = ceil_div((o.heads + o.kv_heads) * L::kLanes, kWarp) * kWarp;
    const auto threads = static_cast<unsigned>(std::min<int64_t>(lanes, kThreads));
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid_for(p.tokens, 1), threads}),
                    (o.pairing == RopePairing::adjacent ? forward_tokens<L, true, T>
                                                        : forward_tokens<L, false, T>),
                    p);
  });
}

int64_t qk_token_blocks(const Cuda& cuda, int64_t tokens) {
  return std::min<int64_t>(tokens,
                           int64_t{gpu_of(cuda).multiprocessors} * kBlocksPerMultiprocessor);
}

template <class T>
void qk_norm_rope_backward(const Cuda& cuda, const QkNormRopeBackward<T>& p) {
  const QkNormRope& o = p.options;
  const bool packs = heads_fit_packs<T>(o, p.angles, p.q_weight, p.k_weight, p.dy) &&
                     fits_packs(p.x_stride, p.x) && fits_packs(p.dx_stride, p.dx);
  const dim3 grid(static_cast<unsigned>(qk_token_blocks(cuda, p.tokens)));
  with_layout<T>(o.head_dim, packs, [&](auto layout) {
    using L = decltype(layout);
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{grid, kThreads}),
                    (o.pairing == RopePairing::adjacent ? backward_tokens<L, true, T>
                                                        : backward_tokens<L, false, T>),
                    p);
  });
}

#define XT_QK_NORM_ROPE(T)                                                      \
  template void qk_norm_rope_forward(const Cuda&, const QkNormRopeForward<T>&); \
  template void qk_norm_rope_backward(const Cuda&, const QkNormRopeBackward<T>&);
XT_QK_NORM_ROPE(double)
XT_QK_NORM_ROPE(float)
XT_QK_NORM_ROPE(BFloat16)
#undef XT_QK_NORM_ROPE

}  // namespace xtrain
