// Where there are too few key heads to keep every multiprocessor busy, the query heads that share
// one are dealt out over several blocks, whose sums in f32 are then added in the order of the
// heads.

#include "core/allocator.h"
#include "core/cuda/launch.h"
#include "ops/attention/flash_wgmma_backward_cuda.h"

namespace xtrain::flash_wgmma {
namespace {

// The fewest shares, which must divide the group, with a tile of keys for every multiprocessor.
int shares_of(const Cuda& cuda, const AttentionSizes& n) {
  constexpr int64_t kKeys = 128;  // of a tile
  const int64_t tiles = n.batch * n.kv_heads * ceil_div(n.keys, kKeys), group = n.group();
  int64_t shares = 1;
  while (shares < group && (group % shares != 0 || tiles * shares < gpu_of(cuda).multiprocessors)) {
    ++shares;
  }
  return static_cast<int>(shares);
}

// A thread does two neighbouring elements of the gradient; parts is [B, Tk, KV, shares, D].
__global__ void add_shares(const float* parts, int shares, const AttentionSizes n,
                           const FlashGradient gradient) {
  begin_behind_others();
  const int64_t pairs = n.head_dim / 2, rows = n.batch * n.keys * n.kv_heads;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= rows * pairs) return;
  const int64_t row = i / pairs, column = i % pairs * 2;
  const float* from = parts + row * shares * n.head_dim + column;
  float2 sum{0.0f, 0.0f};
  for (int share = 0; share < shares; ++share) {
    const float2 part = *reinterpret_cast<const float2*>(from + share * n.head_dim);
    sum.x += part.x;
    sum.y += part.y;
  }
  const int64_t head = row % n.kv_heads, token = row / n.kv_heads;
  const int64_t at = token / n.keys * gradient.batch + token % n.keys * gradient.time +
                     head * gradient.head + column * gradient.dim;
  flash_mma::store_pair(gradient, at, sum.x, sum.y);
}

FlashGradient gradient_of_parts(Tensor& parts) {
  return FlashGradient{parts.mutable_data<float>(),
                       true,
                       false,
                       parts.stride(0),
                       parts.stride(1),
                       parts.stride(2),
                       1};
}

}  // namespace

void key_gradients(const Cuda& cuda, const FlashBackward<BFloat16>& call, const QueryTerms& terms) {
  const AttentionSizes& n = call.problem.sizes;
  const int shares = shares_of(cuda, n);
  if (shares == 1) return key_sums(cuda, call, terms, 1);
  const Shape shape{n.batch, n.keys, n.kv_heads * shares, n.head_dim};
  FlashBackward<BFloat16> in_parts = call;
  Tensor dk, dv;
  if (call.dk.data) in_parts.dk = gradient_of_parts(dk = empty(cuda.ctx, shape, Dtype::f32));
  if (call.dv.data) in_parts.dv = gradient_of_parts(dv = empty(cuda.ctx, shape, Dtype::f32));
  key_sums(cuda, in_parts, terms, shares);
  constexpr int kThreads = 256;
  const dim3 blocks(
      static_cast<unsigned>(ceil_div(n.batch * n.keys * n.kv_heads * n.head_dim / 2, kThreads)));
  const auto add = [&](const Tensor& parts, const FlashGradient& gradient) {
    if (!gradient.data) return;
    XT_LAUNCH_AHEAD(cuda, (LaunchShape{blocks, kThreads}), add_shares, parts.data<float>(), shares,
                    n, gradient);
  };
  add(dk, call.dk);
  add(dv, call.dv);
}

}  // namespace xtrain::flash_wgmma
