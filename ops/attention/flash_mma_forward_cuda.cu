// Flash attention forward on the tensor cores by mma.sync, after FlashAttention-2 (Dao, arXiv
// 2307.08691).
//
// A block owns a tile of queries of one head, a warp kRowTiles * 16 of them, and streams over the
// tiles of keys that they see. While a tile is worked on, cp.async brings the next one. Scores and
// probabilities never leave registers: rounded to bf16, the probabilities are the left operand of
// the product with the values. Sums and the softmax's statistics are f32, exponents base 2 with the
// scale folded in.

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "ops/attention/flash_mma_cuda.h"

namespace xtrain {
namespace {

using namespace flash_mma;

// kBlocks: how many blocks shall share a multiprocessor.
template <int kHeadDim, int kWarps, int kRowTiles, int kKeys, bool kQueriesInRegisters, int kBlocks>
struct ForwardTiling {
  static constexpr int kWidth = kHeadDim, kRowTileCount = kRowTiles, kKeyCount = kKeys;
  static constexpr int kThreads = kWarps * 32, kBlocksTogether = kBlocks;
  static constexpr int kWarpQueries = kRowTiles * 16, kQueryCount = kWarps * kWarpQueries;
  static constexpr int kStageKeys = kKeys;
  static constexpr bool kHoldsQueries = kQueriesInRegisters;
  // Shared memory: queries, two stages of keys and values, ranges of the queries.
  static constexpr int kQueryBytes = kQueryCount * kWidth * 2, kKeyBytes = kKeyCount * kWidth * 2;
  static constexpr int kStageBytes = 2 * kKeyBytes, kRangesAt = kQueryBytes + 2 * kStageBytes;
  static constexpr int kSharedBytes = kRangesAt + kQueryCount * static_cast<int>(sizeof(KeyRange));
};

// The softmax so far of the rows of a lane, two a row tile.
template <int kRowTiles>
struct RunningSoftmax {
  float largest[kRowTiles][2], sum[kRowTiles][2];  // of the scores; of 2^(factor (s - largest))

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        largest[m][h] = -INFINITY;
        sum[m][h] = 0.0f;
      }
    }
  }
};

// Takes a tile of scores into the softmax and turns them into 2^(factor (s - largest)); what was
// summed before, in the softmax and in the output, is brought to the new largest score.
template <int kRowTiles, int kColumnTiles, int kOutTiles>
__device__ void advance_softmax(RunningSoftmax<kRowTiles>& softmax,
                                MmaSums<kRowTiles, kColumnTiles>& s,
                                MmaSums<kRowTiles, kOutTiles>& out, float factor) {
  float shift[kRowTiles][2], rescale[kRowTiles][2];
  bool grows = false;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = softmax.largest[m][h];
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        largest = fmaxf(largest, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      }
      largest = row_maximum(largest);
      // A query that has seen nothing yet has no finite score to subtract.
      shift[m][h] = largest == -INFINITY ? 0.0f : largest * factor;
      rescale[m][h] = exp2_approximate(softmax.largest[m][h] * factor - shift[m][h]);
      grows |= largest != softmax.largest[m][h];
      softmax.largest[m][h] = largest;
    }
  }
  // After the first tiles the largest scores seldom grow.
  if (__any_sync(kAllLanes, grows)) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) softmax.sum[m][h] *= rescale[m][h];
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] *= rescale[m][i / 2];
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float p = exp2_approximate(s[m][n][2 * h + e] * factor - shift[m][h]);
          s[m][n][2 * h + e] = p;
          sum += p;
        }
      }
      softmax.sum[m][h] += sum;
    }
  }
}

// Turns the sign of bf16 queries, which turns that of the scores. The maximum of the scores is then
// that of the scaled scores where the scale is negative, too.
__device__ inline void negate_shared(unsigned char* shared, int bytes) {
  for (int i = threadIdx.x * 4; i < bytes; i += blockDim.x * 4) {
    *reinterpret_cast<uint32_t*>(shared + i) ^= 0x80008000u;
  }
}

// Output and log-sum of the warp's queries, from `query` on.
template <int kRowTiles, int kOutTiles>
__device__ void store_output(const FlashForward<BFloat16>& call, int64_t batch, int64_t head,
                             int64_t query, const RunningSoftmax<kRowTiles>& softmax,
                             const MmaSums<kRowTiles, kOutTiles>& out, const KeyRange* ranges) {
  const AttentionSizes& n = call.problem.sizes;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const float scale = fabsf(static_cast<float>(call.problem.scale));
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = m * 16 + h * 8 + g;
      const float sum = row_sum(softmax.sum[m][h]);
      const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
      if (query + row >= n.queries) continue;
      BFloat16* to =
          call.o + ((batch * n.queries + query + row) * n.heads + head) * (kOutTiles * 8);
#pragma unroll
      for (int d = 0; d < kOutTiles; ++d) {
        *reinterpret_cast<uint32_t*>(to + d * 8 + 2 * t) =
            pack_bf16(out[m][d][2 * h] * share, out[m][d][2 * h + 1] * share);
      }
      if (t == 0) {
        const bool blind = ranges[row].first == ranges[row].end;
        call.log_sum[(batch * n.heads + head) * n.queries + query + row] =
            blind ? INFINITY : softmax.largest[m][h] * scale + logf(sum);
      }
    }
  }
}

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    flash_forward_mma(const FlashForward<BFloat16> call, unsigned query_tiles) {
  constexpr int kWidth = Tiling::kWidth, kKeys = Tiling::kKeyCount, kRows = Tiling::kRowTileCount;
  constexpr int kThreads = Tiling::kThreads;
  extern __shared__ __align__(128) unsigned char shared[];
  KeyRange* ranges = reinterpret_cast<KeyRange*>(shared + Tiling::kRangesAt);
  const FlashProblem& problem = call.problem;
  const AttentionSizes& n = problem.sizes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // The last tile of a causal mask sees most and comes first.
  const unsigned heads = static_cast<unsigned>(n.heads), head_index = blockIdx.x / query_tiles;
  const unsigned batch = head_index / heads, head = head_index % heads;
  const unsigned kv_head = head / static_cast<unsigned>(n.group());
  const int block_query = (query_tiles - 1 - blockIdx.x % query_tiles) * Tiling::kQueryCount;
  const int queries = min(Tiling::kQueryCount, static_cast<int>(n.queries) - block_query);
  const uint32_t q_tile = shared_address(shared), stages = q_tile + Tiling::kQueryBytes;
  copy_rows_async<kWidth, Tiling::kQueryCount, kThreads>(
      q_tile,
      call.q + batch * problem.q.batch + head * problem.q.head + block_query * problem.q.time,
      problem.q.time, 0, queries);

  const SeenByQueries sees = read_ranges<Tiling>(problem, batch, block_query, queries, ranges);
  const int warp_row = warp * Tiling::kWarpQueries;
  const KeyStages<Tiling> keys(problem, call.k, call.v, batch, kv_head, sees.block, stages);
  const int end_key = sees.block.any_end;
  int key = sees.block.any_first / kKeys * kKeys, stage = 0;
  if (key < end_key) keys.copy_async(key, 0);
  copy_async_commit();

  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  if (Tiling::kHoldsQueries || problem.scale < 0.0) {
    copy_async_wait<0>();
    __syncthreads();  // the queries are there
    if (problem.scale < 0.0) {
      negate_shared(shared, Tiling::kQueryBytes);
      __syncthreads();
    }
  }
  const LeftRows<kWidth, kRows, Tiling::kHoldsQueries> q_rows(plain,
                                                              q_tile + warp_row * kWidth * 2);

  const float factor = fabsf(static_cast<float>(problem.scale)) * kLog2E;
  const AttentionDropout dropout = dropout_of<kDrops>(problem);
  RunningSoftmax<kRows> softmax;
  MmaSums<kRows, kWidth / 8> out;
  set_zero(out);
  for (; key < end_key; key += kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with the one before
    if (key + kKeys < end_key) keys.copy_async(key + kKeys, stage ^ 1);
    copy_async_commit();
    if (!sees.warp.some_in(key, key + kKeys)) continue;
    const uint32_t k_tile = stages + stage * Tiling::kStageBytes;
    MmaSums<kRows, kKeys / 8> s;
    set_zero(s);
    q_rows.multiply(s, plain, crossed, k_tile);
    if (!sees.warp.all_of(key, key + kKeys)) mask_rows(s, ranges + warp_row, key, -INFINITY);
    advance_softmax(softmax, s, out, factor);
    if constexpr (kDrops) {
      drop_rows(s, dropout, batch, head, block_query + warp_row, key);
    }
    MmaLeft<kRows, kKeys / 16> p;
    pack_left(p, s);
    multiply<kWidth>(out, p, plain, k_tile + Tiling::kKeyBytes);
  }
  store_output(call, batch, head, block_query + warp_row, softmax, out, ranges + warp_row);
}

template <class Tiling>
void launch_forward(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  const AttentionSizes& n = call.problem.sizes;
  const int64_t tiles = ceil_div(n.queries, Tiling::kQueryCount);
  const LaunchShape shape{dim3(static_cast<unsigned>(n.batch * n.heads * tiles)),
                          dim3(Tiling::kThreads), Tiling::kSharedBytes};
  if (call.problem.drops) {
    XT_LAUNCH(cuda, shape, (flash_forward_mma<Tiling, true>), call, tiles);
  } else {
    XT_LAUNCH(cuda, shape, (flash_forward_mma<Tiling, false>), call, tiles);
  }
}

// Calls f(tiling) with the tiling of a head size.
template <class F>
bool with_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(ForwardTiling<32, 4, 2, 64, true, 3>{});
    case 64:
      return f(ForwardTiling<64, 4, 2, 64, true, 2>{});
    case 96:
      return f(ForwardTiling<96, 4, 2, 64, false, 2>{});
    case 128:
      return f(ForwardTiling<128, 4, 2, 64, false, 2>{});
    case 256:
      return f(ForwardTiling<256, 4, 1, 32, false, 2>{});
  }
  return false;
}

}  // namespace

bool mma_supports(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  const GpuProperties& gpu = gpu_of(cuda);
  return gpu.compute_capability >= 80 && sizes_fit(call.problem.sizes) &&
         inputs_are_aligned(call.problem, call.q, call.k, call.v) &&
         reinterpret_cast<uintptr_t>(call.o) % 16 == 0 &&
         with_tiling(call.problem.sizes.head_dim, [&](auto tiling) {
           return decltype(tiling)::kSharedBytes <= gpu.shared_bytes_per_block;
         });
}

void mma_forward(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  with_tiling(call.problem.sizes.head_dim, [&](auto tiling) {
    launch_forward<decltype(tiling)>(cuda, call);
    return true;
  });
}

}  // namespace xtrain
