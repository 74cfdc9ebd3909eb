#include "ops/cached_attention/cached_attention.h"

#include <type_traits>

#include "core/copy.h"
#include "core/error.h"
#include "ops/append_rows/append_rows.h"
#include "ops/attention/attention.h"
#include "ops/cached_attention/cached_attention_kernels.h"
#include "ops/optional_data.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

constexpr const char* kName = "cached_attention";

bool is_vector(const Tensor& x, int64_t size, Dtype dtype) {
  return x.defined() && x.shape() == Shape{size} && x.dtype() == dtype && x.is_contiguous();
}

// That the kernel may read and write what the composed ops would check one after the other.
void check_arguments(const Tensor& packed, const Tensor& q_weight, const Tensor& k_weight,
                     const QkNormRope& o, const RopeTable* table, const CachedTokens& cache) {
  const int64_t B = cache.keys.size(0), width = (o.heads + 2 * o.kv_heads) * o.head_dim;
  const Shape tables{B, cache.keys.size(1), o.kv_heads, o.head_dim};
  check(o.kv_heads > 0 && o.heads % o.kv_heads == 0, kName, ": kv_heads must divide heads; got ",
        o.kv_heads, " and ", o.heads);
  check(o.head_dim > 0 && (o.head_dim % 2 == 0 || !(q_weight.defined() || table)), kName,
        ": head_dim must be positive, and even where heads are normed or turned; got ", o.head_dim);
  check(!q_weight.defined() || o.eps > 0.0, kName, ": eps must be positive; got ", o.eps);
  check(packed.shape() == Shape{B, 1, width}, kName, ": packed must be ", Shape{B, 1, width},
        ", one token of each row of the cache; got ", packed.shape());
  check(cache.keys.shape() == tables && cache.values.shape() == tables &&
            cache.keys.is_contiguous() && cache.values.is_contiguous() &&
            cache.keys.dtype() == packed.dtype() && cache.values.dtype() == packed.dtype(),
        kName, ": keys and values must be contiguous ", packed.dtype(), " of shape ", tables,
        "; got ", cache.keys.dtype(), " ", cache.keys.shape(), " and ", cache.values.dtype(), " ",
        cache.values.shape());
  for (const Tensor& counts : {cache.start, cache.added, cache.end}) {
    check(counts.defined(), kName, ": start, added and end must all be given");
    check(is_vector(counts, B, Dtype::i32), kName, ": start, added and end must be i32 of shape ",
          Shape{B}, "; got ", counts.dtype(), " ", counts.shape());
  }
  check(q_weight.defined() == k_weight.defined(), kName,
        ": the weights of queries and keys must both be given or none; got one");
  for (const Tensor& weight : {q_weight, k_weight}) {
    check(!weight.defined() || is_vector(weight, o.head_dim, packed.dtype()), kName,
          ": a weight must be contiguous ", packed.dtype(), " of shape ", Shape{o.head_dim},
          "; got ", weight.dtype(), " ", weight.shape());
  }
  if (!table) return;
  check(table->head_dim() == o.head_dim && table->positions() >= tables[1] &&
            table->cos.dtype() == accumulator_dtype(packed.dtype()),
        kName, ": the table must be ", accumulator_dtype(packed.dtype()), " and serve heads of ",
        o.head_dim, " elements at ", tables[1], " positions; got ", table->cos.dtype(), ", ",
        table->head_dim(), " and ", table->positions());
}

template <class T>
CachedAttention<T> kernel_call(const Tensor& packed, const Tensor& q_weight, const Tensor& k_weight,
                               const QkNormRope& options, const RopeTable* table,
                               const CachedTokens& cache, Tensor& o) {
  using A = Accumulator<T>;
  Tensor keys = cache.keys, values = cache.values;
  return {options,
          packed.size(0),
          keys.size(1),
          packed.data<T>(),
          packed.stride(0),
          data_or_null<T>(q_weight),
          data_or_null<T>(k_weight),
          table ? table->cos.data<A>() : nullptr,
          table ? table->sin.data<A>() : nullptr,
          cache.start.data<int32_t>(),
          cache.added.data<int32_t>(),
          keys.mutable_data<T>(),
          values.mutable_data<T>(),
          o.mutable_data<T>()};
}

}  // namespace

Tensor cached_attention(const Context& ctx, const Tensor& packed, const Tensor& q_weight,
                        const Tensor& k_weight, const QkNormRope& options, const RopeTable* table,
                        const CachedTokens& cache) {
  check_arguments(packed, q_weight, k_weight, options, table, cache);
  const Tensor token = contiguous(ctx, packed);
  Tensor o;
  dispatch(ctx, token, kName, [&](auto device, auto scalar) {
    using T = decltype(scalar);
    Tensor result =
        empty(ctx, {packed.size(0), 1, options.heads * options.head_dim}, packed.dtype());
    const auto call = kernel_call<T>(token, q_weight, k_weight, options, table, cache, result);
    if constexpr (std::is_same_v<decltype(device), Cuda>) {
      if (!cached_attention_supports(device, call)) return;
    }
    cached_attention_forward(device, call);
    o = result;
  });
  return o.defined()
             ? o
             : cached_attention_composed(ctx, token, q_weight, k_weight, options, table, cache);
}

Tensor cached_attention_composed(const Context& ctx, const Tensor& packed, const Tensor& q_weight,
                                 const Tensor& k_weight, const QkNormRope& o,
                                 const RopeTable* table, const CachedTokens& cache) {
  check_arguments(packed, q_weight, k_weight, o, table, cache);
  const int64_t q_width = o.heads * o.head_dim, kv_width = o.kv_heads * o.head_dim;
  const std::vector<Var> parts = split(ctx, packed, -1, {q_width + kv_width, kv_width});
  Var qk = parts[0];
  if (q_weight.defined() || table) {
    const Tensor positions = cache.start.reshape({packed.size(0), 1});
    qk = qk_norm_rope(ctx, qk, q_weight, k_weight, o, table, positions);
  }
  const Var q = slice(ctx, qk, -1, 0, q_width), k = slice(ctx, qk, -1, q_width, kv_width);
  append_rows(ctx, split_heads(ctx, k, o.kv_heads).value,
              split_heads(ctx, parts[1], o.kv_heads).value, cache.start, cache.added, cache.keys,
              cache.values);
  AttentionOptions options;
  options.mask.position_base = cache.start;
  options.mask.key_length = cache.end;
  options.mask.is_checked = true;
  const Var mixed =
      attention_flash(ctx, split_heads(ctx, q, o.heads), cache.keys, cache.values, options);
  return merge_heads(ctx, mixed).value;
}

}  // namespace xtrain
