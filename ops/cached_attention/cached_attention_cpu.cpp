#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "ops/append_rows/append_rows_kernels.h"
#include "ops/attention/one_query_cpu.h"
#include "ops/cached_attention/cached_attention_kernels.h"
#include "ops/qk_norm_rope/qk_norm_rope_kernels.h"

namespace xtrain {
namespace {

constexpr int64_t kPieceProducts = int64_t{1} << 19;  // what outweighs waking a thread

// Queries and keys of all rows [B, (H + KV) D], normed and turned. Undefined where packed has them.
template <class T>
Tensor turned_heads(const Cpu& cpu, const CachedAttention<T>& p) {
  using A = Accumulator<T>;
  const QkNormRope& o = p.options;
  const int64_t half = o.head_dim / 2;
  if (!p.q_weight && !p.cos) return Tensor();
  Tensor y = empty(cpu.ctx, {p.batch, o.width()}, dtype_of<T>), rstd;
  if (p.q_weight) rstd = empty(cpu.ctx, {p.batch, o.heads + o.kv_heads}, dtype_of<A>);
  // Without a table every token stands at position 0 of a table of one position.
  const std::vector<A> ones(p.cos ? 0 : half, A{1}), zeros(p.cos ? 0 : half, A{0});
  const TokenAngles<A> angles = p.cos ? TokenAngles<A>{p.cos, p.sin, p.capacity, p.start}
                                      : TokenAngles<A>{ones.data(), zeros.data(), 1, nullptr};
  qk_norm_rope_forward(
      cpu, QkNormRopeForward<T>{o, p.batch, p.packed, p.packed_stride, p.q_weight, p.k_weight,
                                angles, y.mutable_data<T>(), mutable_data_or_null<A>(rstd)});
  return y;
}

}  // namespace

template <class T>
void cached_attention_forward(const Cpu& cpu, const CachedAttention<T>& p) {
  const QkNormRope& o = p.options;
  const int64_t D = o.head_dim, kv_width = o.kv_heads * D, q_width = o.heads * D;
  const Tensor turned = turned_heads(cpu, p);
  const T* const qk = turned.defined() ? turned.data<T>() : p.packed;
  const int64_t stride = turned.defined() ? o.width() : p.packed_stride;
  const TableRows<T> rows[] = {{qk + q_width, stride, stride, p.keys},
                               {p.packed + o.width(), p.packed_stride, p.packed_stride, p.values}};
  append_rows(cpu, AppendRows{p.batch, 1, kv_width, p.capacity, p.start, p.added},
              std::span<const TableRows<T>>(rows));
  const int64_t products = std::max<int64_t>(1, 2 * p.capacity * D);
  const int64_t together = std::max<int64_t>(1, kPieceProducts / products);
  parallel_blocks(cpu, p.batch * o.heads, together, [&](int64_t begin, int64_t end) {
    flash::OneQuery<T> query(cpu.ctx, D, scale_of(AttentionOptions{}, D));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / o.heads, head = i % o.heads;
      const int64_t first = b * p.capacity * kv_width + head / (o.heads / o.kv_heads) * D;
      const auto held =
          static_cast<int32_t>(std::min<int64_t>(p.capacity, p.start[b] + p.added[b]));
      query.run(qk + b * stride + head * D, {p.keys + first, kv_width},
                {p.values + first, kv_width}, KeyRange{0, held}, p.o + i * D);
    }
  });
}

#define XT_CACHED_ATTENTION(T) \
  template void cached_attention_forward(const Cpu&, const CachedAttention<T>&);
XT_CACHED_ATTENTION(double)
XT_CACHED_ATTENTION(float)
XT_CACHED_ATTENTION(BFloat16)
#undef XT_CACHED_ATTENTION

}  // namespace xtrain
