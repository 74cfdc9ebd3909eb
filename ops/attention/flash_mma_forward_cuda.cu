// Flash attention forward on the tensor cores by mma.sync, after FlashAttention-2 (Dao, arXiv
// 2307.08691).
//
// A block owns a tile of queries of one head, a warp kRowTiles * 16 of them, and streams over the
// tiles of keys that they see. While a tile is worked on, cp.async brings the next one. Scores and
// probabilities never leave registers: rounded to bf16, the probabilities are the left operand of
// the product with the values. Sums and the softmax's statistics are f32, exponents base 2 with the
// scale folded in. docs/flash_attention.md says what each choice gave.

#include "core/cuda/launch.h"
#include "core/cuda/mma.h"
#include "ops/attention/flash_block_order.h"
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
  static constexpr bool kHoldsQueries = kQueriesInRegisters;
  // Shared memory: queries, two stages of keys and values, ranges of the queries.
  static constexpr int kQueryBytes = kQueryCount * kWidth * 2, kKeyBytes = kKeyCount * kWidth * 2;
  static constexpr int kStageBytes = 2 * kKeyBytes, kRangesAt = kQueryBytes + 2 * kStageBytes;
  static constexpr int kSharedBytes = kRangesAt + kQueryCount * static_cast<int>(sizeof(KeyRange));
};

// Tiles of kRows rows of one head on their way to shared memory, by a block of kThreads threads.
template <int kWidth, int kRows, int kThreads>
class TileCopy {
  using Rows = SharedRows<kWidth>;
  static constexpr int kAtOnce = kThreads / Rows::kPieces;
  // Where the rows copied at once are whole turns of the permutation of SharedRows, a thread's
  // pieces lie at even distances, and what it computes of their addresses is done before all tiles.
  static constexpr bool kEven =
      kThreads % Rows::kPieces == 0 && kAtOnce % 8 == 0 && kRows % kAtOnce == 0;

 public:
  __device__ TileCopy(const BFloat16* from, int64_t stride) : from_(from), stride_(stride) {
    if constexpr (kEven) {
      const int piece = static_cast<int>(threadIdx.x % Rows::kPieces);
      row_ = static_cast<int>(threadIdx.x / Rows::kPieces);
      place_ = Rows::offset(row_, piece);
      from_ += row_ * stride + piece * 8;
    }
  }

  // The rows from `row` on; those outside [first, end) become zeros and are not read.
  __device__ void copy(uint32_t tile, int row, int first, int end) const {
    const BFloat16* from = from_ + row * stride_;
    if constexpr (!kEven) {
      copy_rows_async<kWidth, kRows, kThreads>(tile, from, stride_, first - row, end - row);
    } else if (first <= row && row + kRows <= end) {
#pragma unroll
      for (int done = 0; done < kRows; done += kAtOnce) {
        copy_async(tile + place_ + done * Rows::kRowBytes, from);
        from += kAtOnce * stride_;
      }
    } else {
      const int low = first - row - row_, high = end - row - row_;
#pragma unroll
      for (int done = 0; done < kRows; done += kAtOnce) {
        copy_async(tile + place_ + done * Rows::kRowBytes, from, low <= done && done < high);
        from += kAtOnce * stride_;
      }
    }
  }

 private:
  const BFloat16* from_;
  int64_t stride_;
  int row_;         // of a tile: the thread's first
  uint32_t place_;  // in a tile: of the thread's piece of that row
};

// The keys and values of one head and the two stages of shared memory that they come to.
template <class Tiling>
class KeyTiles {
  using Copy = TileCopy<Tiling::kWidth, Tiling::kKeyCount, Tiling::kThreads>;

 public:
  __device__ KeyTiles(const FlashForward<BFloat16>& call, unsigned batch, unsigned kv_head,
                      uint32_t stages)
      : keys_(call.k + batch * call.problem.k.batch + kv_head * call.problem.k.head,
              call.problem.k.time),
        values_(call.v + batch * call.problem.v.batch + kv_head * call.problem.v.head,
                call.problem.v.time),
        stages_(stages) {}

  __device__ uint32_t keys_at(int stage) const { return stages_ + stage * Tiling::kStageBytes; }
  __device__ uint32_t values_at(int stage) const { return keys_at(stage) + Tiling::kKeyBytes; }

  // Those from `key` on, of which only [first, end) are read.
  __device__ void copy_keys(int stage, int key, int first, int end) const {
    keys_.copy(keys_at(stage), key, first, end);
  }
  __device__ void copy_values(int stage, int key, int first, int end) const {
    values_.copy(values_at(stage), key, first, end);
  }

 private:
  Copy keys_, values_;
  uint32_t stages_;
};

// The softmax so far of the rows of a lane, two a row tile.
template <int kRowTiles>
struct RunningSoftmax {
  float shift[kRowTiles][2];  // -infinity: nothing seen yet
  float sum[kRowTiles][2];    // of 2^(factor s - shift), over the lane's columns

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shift[m][h] = -INFINITY;
        sum[m][h] = 0.0f;
      }
    }
  }
};

// Moves the shifts of rows in which a score has run ahead by kShiftSlack to the largest score, and
// what was summed before with them. As long as none has, lanes need not exchange their maxima.
template <int kRowTiles, int kColumnTiles, int kOutTiles>
__device__ void move_shifts(RunningSoftmax<kRowTiles>& softmax,
                            const MmaSums<kRowTiles, kColumnTiles>& s,
                            MmaSums<kRowTiles, kOutTiles>& out, float factor) {
  float largest[kRowTiles][2];
  bool moves = false;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < kColumnTiles; ++n) {
        x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      }
      largest[m][h] = x * factor;
      moves |= largest[m][h] - softmax.shift[m][h] > kShiftSlack;
    }
  }
  if (!__any_sync(kAllLanes, moves)) return;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    float rescale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Each row for itself: what a query computes must not depend on its neighbours.
      const float row_largest = row_maximum(largest[m][h]);
      const bool row_moves = row_largest - softmax.shift[m][h] > kShiftSlack;
      rescale[h] = row_moves ? exp2_approximate(softmax.shift[m][h] - row_largest) : 1.0f;
      if (row_moves) softmax.shift[m][h] = row_largest;
      softmax.sum[m][h] *= rescale[h];
    }
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[m][n][i] *= rescale[i / 2];
    }
  }
}

// Turns scores into 2^(factor s - shift) and sums them.
template <int kRowTiles, int kColumnTiles>
__device__ void take_exponentials(RunningSoftmax<kRowTiles>& softmax,
                                  MmaSums<kRowTiles, kColumnTiles>& s, float factor) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    float shift[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // A query that has seen nothing yet has no finite score to subtract.
      shift[h] = softmax.shift[m][h] == -INFINITY ? 0.0f : softmax.shift[m][h];
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = exp2_approximate(fmaf(s[m][n][i], factor, -shift[i / 2]));
        softmax.sum[m][i / 2] += s[m][n][i];
      }
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
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = m * 16 + h * 8 + g;
      const float sum = row_sum(softmax.sum[m][h]);
      const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
      const bool exists = query + row < n.queries;
      BFloat16* to =
          call.o + ((batch * n.queries + query + row) * n.heads + head) * (kOutTiles * 8) + t * 8;
      // The words of four neighbouring tiles become 16 bytes of one of them in each lane.
      static_assert(kOutTiles % 4 == 0);
#pragma unroll
      for (int d = 0; d < kOutTiles; d += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = pack_bf16(out[m][d + i][2 * h] * share, out[m][d + i][2 * h + 1] * share);
        }
        transpose_words(x);
        if (exists) *reinterpret_cast<uint4*>(to + d * 8) = make_uint4(x[0], x[1], x[2], x[3]);
      }
      if (t == 0 && exists) {
        const bool blind = ranges[row].first == ranges[row].end;
        call.log_sum[(batch * n.heads + head) * n.queries + query + row] =
            blind ? INFINITY : softmax.shift[m][h] * (1.0f / kLog2E) + logf(sum);
      }
    }
  }
}

// The queries of a block.
struct QueryTile {
  unsigned batch, head, kv_head;
  int first, count;
};

template <class Tiling>
__device__ QueryTile queries_of_block(const AttentionSizes& n, const BlockOrder& order) {
  const auto [head_index, rank] = order.place(blockIdx.x);
  const unsigned heads = static_cast<unsigned>(n.heads), head = head_index % heads;
  const int first = static_cast<int>(order.tiles - 1 - rank) * Tiling::kQueryCount;
  return QueryTile{head_index / heads, head, head / (heads / static_cast<unsigned>(n.kv_heads)),
                   first, min(Tiling::kQueryCount, static_cast<int>(n.queries) - first)};
}

// Begins to copy the block's queries and first keys, a group, and their values, another, so that
// the first scores need not wait for values. Reads the ranges of the queries meanwhile.
template <class Tiling>
__device__ SeenByQueries begin_copies(const FlashForward<BFloat16>& call, const QueryTile& block,
                                      const KeyTiles<Tiling>& tiles, uint32_t q_tile,
                                      KeyRange* ranges) {
  const FlashProblem& p = call.problem;
  TileCopy<Tiling::kWidth, Tiling::kQueryCount, Tiling::kThreads>(
      call.q + block.batch * p.q.batch + block.head * p.q.head + block.first * p.q.time, p.q.time)
      .copy(q_tile, 0, 0, block.count);
  // Where what queries see begins with the first key, that can come before it is known how much
  // they see. Keys that none of them sees may then be anything: their scores are hidden.
  const bool from_start = p.visible.window <= 0 && p.visible.document_start == nullptr;
  if (from_start) tiles.copy_keys(0, 0, 0, static_cast<int>(p.sizes.keys));
  const SeenByQueries sees = read_ranges<Tiling>(p, block.batch, block.first, block.count, ranges);
  const int first = sees.block.any_first, end = sees.block.any_end;
  const int key = first / Tiling::kKeyCount * Tiling::kKeyCount;
  if (!from_start && key < end) tiles.copy_keys(0, key, first, end);
  copy_async_commit();
  if (key < end) tiles.copy_values(0, key, first, end);
  copy_async_commit();
  return sees;
}

template <class Tiling, bool kDrops>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kBlocksTogether)
    flash_forward_mma(const FlashForward<BFloat16> call, const BlockOrder order) {
  constexpr int kWidth = Tiling::kWidth, kKeys = Tiling::kKeyCount, kRows = Tiling::kRowTileCount;
  extern __shared__ __align__(128) unsigned char shared[];
  KeyRange* ranges = reinterpret_cast<KeyRange*>(shared + Tiling::kRangesAt);
  const FlashProblem& problem = call.problem;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * Tiling::kWarpQueries;
  const QueryTile block = queries_of_block<Tiling>(problem.sizes, order);
  const uint32_t q_tile = shared_address(shared);
  const KeyTiles<Tiling> tiles(call, block.batch, block.kv_head, q_tile + Tiling::kQueryBytes);
  const SeenByQueries sees = begin_copies(call, block, tiles, q_tile, ranges);
  const int any_first = sees.block.any_first, end_key = sees.block.any_end;
  const int first_key = any_first / kKeys * kKeys;

  copy_async_wait<1>();
  __syncthreads();  // queries and first keys are there
  if (problem.scale < 0.0) {
    negate_shared(shared, Tiling::kQueryBytes);
    __syncthreads();
  }
  const auto plain = MatrixLane<kWidth>::plain(lane), crossed = MatrixLane<kWidth>::crossed(lane);
  const LeftRows<kWidth, kRows, Tiling::kHoldsQueries> q_rows(plain,
                                                              q_tile + warp_row * kWidth * 2);
  const float factor = fabsf(static_cast<float>(problem.scale)) * kLog2E;
  const AttentionDropout dropout = dropout_of<kDrops>(problem);
  RunningSoftmax<kRows> softmax;
  MmaSums<kRows, kWidth / 8> out;
  set_zero(out);
  for (int key = first_key, stage = 0; key < end_key; key += kKeys, stage ^= 1) {
    if (key > first_key) {
      copy_async_wait<0>();
      __syncthreads();  // the tile is there, and every warp is done with the one before
    }
    if (key + kKeys < end_key) {
      tiles.copy_keys(stage ^ 1, key + kKeys, any_first, end_key);
      tiles.copy_values(stage ^ 1, key + kKeys, any_first, end_key);
    }
    copy_async_commit();
    const bool sees_some = sees.warp.some_in(key, key + kKeys);
    MmaSums<kRows, kKeys / 8> s;
    if (sees_some) {
      set_zero(s);
      q_rows.multiply(s, plain, crossed, tiles.keys_at(stage));
      if (!sees.warp.all_of(key, key + kKeys)) mask_rows(s, ranges + warp_row, key, -INFINITY);
      move_shifts(softmax, s, out, factor);
    }
    if (key == first_key) {
      copy_async_wait<1>();
      __syncthreads();  // the first values are there
    }
    if (!sees_some) continue;
    take_exponentials(softmax, s, factor);
    if constexpr (kDrops) {
      drop_rows(s, dropout, block.batch, block.head, block.first + warp_row, key);
    }
    MmaLeft<kRows, kKeys / 16> p;
    pack_left(p, s);
    multiply<kWidth>(out, p, plain, tiles.values_at(stage));
  }
  store_output(call, block.batch, block.head, block.first + warp_row, softmax, out,
               ranges + warp_row);
}

template <class Tiling>
void launch_forward(const Cuda& cuda, const FlashForward<BFloat16>& call) {
  const AttentionSizes& n = call.problem.sizes;
  // Groups of 32 and of 64 MiB of keys and values gave the same, those of 16 MiB 1 % less.
  constexpr int64_t kBytesTogether = int64_t{32} << 20;
  const BlockOrder order = block_order(n.batch * n.heads, ceil_div(n.queries, Tiling::kQueryCount),
                                       n.keys * n.head_dim * 4 / n.group(), kBytesTogether);
  const LaunchShape shape{dim3(order.blocks()), dim3(Tiling::kThreads), Tiling::kSharedBytes};
  if (call.problem.drops) {
    XT_LAUNCH(cuda, shape, (flash_forward_mma<Tiling, true>), call, order);
  } else {
    XT_LAUNCH(cuda, shape, (flash_forward_mma<Tiling, false>), call, order);
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
