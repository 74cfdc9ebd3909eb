#include "ops/attention/attention.h"

#include <cmath>

#include "core/check_indices.h"
#include "core/copy.h"
#include "core/error.h"
#include "ops/attention/attention_inputs.h"

namespace xtrain {
namespace {

constexpr int64_t kLargestHeadDim = 256;

void check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  check(q.defined() && k.defined() && v.defined(),
        "attention: q, k and v must be given; got an undefined one");
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4,
        "attention: q must be [B, Tq, H, D], k and v [B, Tk, KV, D]; got ", q.shape(), ", ",
        k.shape(), ", ", v.shape());
  check(k.shape() == v.shape() && q.size(0) == k.size(0) && q.size(3) == k.size(3),
        "attention: k and v must have one shape, and the batch and head_dim of q; got ", q.shape(),
        ", ", k.shape(), ", ", v.shape());
  check(q.dtype() == k.dtype() && q.dtype() == v.dtype(),
        "attention: q, k and v must have one dtype; got ", q.dtype(), ", ", k.dtype(), ", ",
        v.dtype());
  check(k.size(2) > 0 && q.size(2) > 0 && q.size(2) % k.size(2) == 0, "attention: ", k.size(2),
        " key heads must divide ", q.size(2), " query heads");
  check(q.size(3) >= 1 && q.size(3) <= kLargestHeadDim, "attention: head_dim must be from 1 to ",
        kLargestHeadDim, "; got ", q.size(3));
}

void check_mask_tensor(const Context& ctx, const Tensor& x, const char* name, const Shape& shape) {
  check(x.defined(), "attention: the mask's ", name, " must be given; see causal_mask");
  check(x.dtype() == Dtype::i32 && x.shape() == shape, "attention: the mask's ", name,
        " must be i32 ", shape, "; got ", x.dtype(), " ", x.shape());
  check(x.device() == ctx.device, "attention: the mask's ", name,
        " must lie on the context's device ", ctx.device, "; got ", x.device());
}

void check_mask(const Context& ctx, const AttentionMask& mask, const AttentionSizes& n) {
  check(mask.window >= 0, "attention: window must be 0 or more; got ", mask.window);
  check_mask_tensor(ctx, mask.position_base, "position_base", {n.batch});
  check_mask_tensor(ctx, mask.key_length, "key_length", {n.batch});
  if (mask.document_start.defined()) {
    check_mask_tensor(ctx, mask.document_start, "document_start", {n.batch, n.queries});
  }
  check(n.keys <= INT32_MAX, "attention: key positions are 32-bit numbers; got ", n.keys, " keys");
  if (mask.is_checked) return;
  check_indices(ctx, "attention", "key_length", contiguous(ctx, mask.key_length), n.keys + 1);
}

// Elements are numbered h 2^56 + t 2^28 + j.
void check_attention_dropout(const Context& ctx, const Dropout& dropout, const AttentionSizes& n) {
  check_dropout(dropout);
  constexpr int64_t kHeads = int64_t{1} << 8, kPositions = int64_t{1} << 28;
  if (!dropout.acts(ctx)) return;
  check(n.heads <= kHeads && n.queries <= kPositions && n.keys <= kPositions,
        "attention: dropout takes up to ", kHeads, " heads and ", kPositions, " positions; got ",
        n.heads, " heads, ", n.queries, " queries, ", n.keys, " keys");
}

}  // namespace

AttentionSizes check_attention(const Context& ctx, const Tensor& q, const Tensor& k,
                               const Tensor& v, const AttentionOptions& options) {
  check_heads(q, k, v);
  const AttentionSizes n{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
  check(std::isfinite(options.scale), "attention: scale must be finite; got ", options.scale);
  check_mask(ctx, options.mask, n);
  check_attention_dropout(ctx, options.dropout, n);
  return n;
}

double scale_of(const AttentionOptions& options, int64_t head_dim) {
  return options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

AttentionMask contiguous_mask(const Context& ctx, const AttentionMask& mask) {
  AttentionMask result = mask;
  result.position_base = contiguous(ctx, mask.position_base);
  result.key_length = contiguous(ctx, mask.key_length);
  if (mask.document_start.defined()) {
    result.document_start = contiguous(ctx, mask.document_start);
  }
  return result;
}

AttentionMask causal_mask(const Context& ctx, int64_t batch, int64_t queries, int64_t keys) {
  AttentionMask mask;
  mask.position_base = empty(ctx, {batch}, Dtype::i32);
  fill(ctx, mask.position_base, static_cast<double>(keys - queries));
  mask.key_length = empty(ctx, {batch}, Dtype::i32);
  fill(ctx, mask.key_length, static_cast<double>(keys));
  return mask;
}

std::string_view name_of(AttentionKind kind) {
  return kind == AttentionKind::composed ? "composed" : "flash";
}

Var attention(const Context& ctx, const Var& q, const Var& k, const Var& v,
              const AttentionOptions& options, AttentionKind kind) {
  return kind == AttentionKind::composed ? attention_composed(ctx, q, k, v, options)
                                         : attention_flash(ctx, q, k, v, options);
}

}  // namespace xtrain
