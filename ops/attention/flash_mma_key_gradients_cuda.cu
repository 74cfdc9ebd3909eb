// The key kernels of the backward pass of flash attention by mma.sync. A block owns a tile of keys
// and walks over the tiles of queries that see some of them, in all query heads that share the key
// head:
//
//   p^T = 2^(factor k q^T - log2_sum)      dv += p^T dy
//   ds^T = p^T (v dy^T - delta)            dk += ds^T q
//
// By warps (flash_mma_key_warps_cuda.h) for small heads, where both sums of a key fit into the
// registers of a warp; by pairs of warps (flash_mma_key_pairs_cuda.h) otherwise.

#include "core/cuda/launch.h"
#include "ops/attention/flash_mma_key_pairs_cuda.h"
#include "ops/attention/flash_mma_key_warps_cuda.h"

namespace xtrain::flash_mma {
namespace {

using KeyKernel = void (*)(FlashBackward<BFloat16>, QueryTerms, BlockOrder);

template <bool kDrops, int... kSizes>
KeyKernel kernel_of(WarpTiling<kSizes...>) {
  return key_gradients_by_warps<WarpTiling<kSizes...>, kDrops>;
}
template <bool kDrops, int kHeadDim, int kPairs, int kRowTiles, int kQueries, int kBlocks,
          bool kLag, bool kHold, int kSteps>
KeyKernel kernel_of(
    PairTiling<kHeadDim, kPairs, kRowTiles, kQueries, kBlocks, kLag, kHold, kSteps>) {
  return key_gradients_by_pairs<
      PairTiling<kHeadDim, kPairs, kRowTiles, kQueries, kBlocks, kLag, kHold, kSteps>, kDrops>;
}

// Calls f(tiling) with the tiling of a head size, which also says by what the kernel works.
template <class F>
void with_key_tiling(int64_t head_dim, F&& f) {
  switch (head_dim) {
    case 32:
      return f(PairTiling<32, 2, 2, 64, 3, true, false, 1>{});
    case 64:
      return f(WarpTiling<64, 4, 2, 32, 2, 2>{});
    case 96:
      return f(PairTiling<96, 2, 2, 64, 2, true, false, 1>{});
    case 128:
      return f(PairTiling<128, 2, 2, 64, 2, false, false, 1>{});
    case 256:
      return f(PairTiling<256, 4, 1, 32, 1, true, false, 1>{});
  }
}

}  // namespace

void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  with_key_tiling(n.head_dim, [&](auto tiling) {
    using Tiling = decltype(tiling);
    const int64_t query_bytes = n.queries * n.head_dim * 4 * n.group();
    const BlockOrder order = block_order(n.batch * n.kv_heads, ceil_div(n.keys, Tiling::kKeyCount),
                                         query_bytes, kBytesTogether);
    const LaunchShape shape{dim3(order.blocks()), dim3(Tiling::kThreads), Tiling::kSharedBytes};
    if (call.problem.drops) {
      XT_LAUNCH(cuda, shape, (kernel_of<true>(tiling)), call, terms, order);
    } else {
      XT_LAUNCH(cuda, shape, (kernel_of<false>(tiling)), call, terms, order);
    }
  });
}

int64_t key_gradients_shared_bytes(int64_t head_dim) {
  int64_t bytes = 0;
  with_key_tiling(head_dim, [&](auto tiling) { bytes = decltype(tiling)::kSharedBytes; });
  return bytes;
}

}  // namespace xtrain::flash_mma
