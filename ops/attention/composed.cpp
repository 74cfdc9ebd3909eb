// Attention from other ops: the definition that attention_flash must equal.

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_inputs.h"
#include "ops/attention/probabilities.h"
#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace xtrain {

Var attention_composed(const Context& ctx, const Var& q, const Var& k, const Var& v,
                       const AttentionOptions& options) {
  const AttentionSizes n = check_attention(ctx, q.value, k.value, v.value, options);
  // Query heads in groups beside their one key head, which repeats.
  const Shape grouped{n.batch, n.kv_heads, n.group(), n.queries, n.head_dim};
  const Shape shared{n.batch, n.kv_heads, 1, n.keys, n.head_dim};
  const Var queries = reshape(ctx, transpose(ctx, q, 1, 2), grouped);
  const Var keys = reshape(ctx, transpose(ctx, k, 1, 2), shared);
  const Var values = reshape(ctx, transpose(ctx, v, 1, 2), shared);

  const Var scores = matmul(ctx, queries, transpose(ctx, keys, -1, -2));  // [B, KV, G, Tq, Tk]
  const Var p = masked_softmax(ctx, scores, scale_of(options, n.head_dim), options.mask);
  const Var dropped = probability_dropout(ctx, p, options.dropout);
  const Var o = matmul(ctx, dropped, values);  // [B, KV, G, Tq, D]

  const Var heads = reshape(ctx, o, {n.batch, n.heads, n.queries, n.head_dim});
  return compact(ctx, transpose(ctx, heads, 1, 2));
}

}  // namespace xtrain
