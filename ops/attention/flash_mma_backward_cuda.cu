// Flash attention backward on the tensor cores by mma.sync, in two kernels that share no sum, so
// that the order of every addition is fixed:
//
//   query kernel   p = 2^(factor q k^T - log2_sum)      ds = p (dy v^T - delta)     dq += ds k
//   key kernel     the same, transposed                 dv += p^T dy                dk += ds^T q

#include "core/cuda/launch.h"
#include "ops/attention/flash_mma_backward_cuda.h"

namespace xtrain {

using namespace flash_mma;

bool mma_supports(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  const GpuProperties& gpu = gpu_of(cuda);
  const int64_t query_bytes = query_gradients_shared_bytes(call.problem.sizes.head_dim);
  const int64_t key_bytes = key_gradients_shared_bytes(call.problem.sizes.head_dim);
  return gpu.compute_capability >= 80 && sizes_fit(call.problem.sizes) &&
         inputs_are_aligned(call.problem, call.q, call.k, call.v) &&
         reinterpret_cast<uintptr_t>(call.o) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(call.dy) % 16 == 0 && query_bytes > 0 && key_bytes > 0 &&
         std::max(query_bytes, key_bytes) <= gpu.shared_bytes_per_block;
}

void mma_backward(const Cuda& cuda, const FlashBackward<BFloat16>& call) {
  const AttentionSizes& n = call.problem.sizes;
  const int64_t tiles = ceil_div(n.queries, kQueryTile * kTileMultiple) * kTileMultiple,
                padded = tiles * kQueryTile;
  Tensor log2_sum = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  Tensor delta = empty(cuda.ctx, {n.batch, n.heads, padded}, Dtype::f32);
  Tensor ranges = empty(cuda.ctx, {n.batch, padded, sizeof(KeyRange) / 4}, Dtype::i32);
  Tensor seen = empty(cuda.ctx, {n.batch, tiles, sizeof(SeenKeys) / 4}, Dtype::i32);
  const QueryTerms terms{static_cast<int>(tiles), log2_sum.mutable_data<float>(),
                         delta.mutable_data<float>(),
                         reinterpret_cast<KeyRange*>(ranges.mutable_data<int32_t>()),
                         reinterpret_cast<SeenKeys*>(seen.mutable_data<int32_t>())};
  query_gradients(cuda, call, terms);
  if (call.dk.data || call.dv.data) key_gradients(cuda, call, terms);
}

}  // namespace xtrain
