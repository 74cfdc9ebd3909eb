#pragma once
// Scaled dot-product attention over ranges of keys (Vaswani et al., "Attention is all you need",
// 2017), with grouped query heads (Ainslie et al., arXiv 2305.13245).
//
//   q [B, Tq, H, D], k and v [B, Tk, KV, D], KV divides H, 1 <= D <= 256   o [B, Tq, H, D]
//   contiguous; query head h reads key head h / (H / KV)
//
//   s[t,j] = scale q[t] . k[j]
//   p[t,j] = exp(s[t,j]) / sum over visible j' of exp(s[t,j'])
//   o[t] = sum_j p[t,j] v[j]
//
//   dv[j] = sum_t p[t,j] do[t]      dp[t,j] = do[t] . v[j]
//   ds[t,j] = p[t,j] (dp[t,j] - do[t] . o[t])
//   dq[t] = scale sum_j ds[t,j] k[j]      dk[j] = scale sum_t ds[t,j] q[t]
//
// Sums over t run over the query heads that share the key head as well. Key j is visible to query t
// when it lies in the range that the mask gives; a query that sees nothing has o = 0 and takes part
// in no gradient. Dropout acts on p after its normalisation.
//
// q, k and v may be regions of one packed projection: strides are read as they are, and gradients
// are written straight into their regions of the packed gradient.
//
// composed keeps the probabilities: memory O(Tq Tk). flash (Dao et al., arXiv 2205.14135) keeps o
// and one number a row, log(sum_j exp(s[t,j])) as [B, H, Tq] in the accumulator's dtype: O(Tq +
// Tk). composed multiplies what lies behind key_length by 0, so it must be finite there; flash
// never reads it.
//
// Errors: shapes, dtypes or devices that do not fit together; D outside [1, 256]; a key_length
// outside [0, Tk].

#include <string_view>

#include "autodiff/tape.h"
#include "ops/dropout/dropout.h"

namespace xtrain {

// Query t of sequence b, at position p = position_base[b] + t, sees the keys lo <= j < hi:
//   hi = min(key_length[b], causal ? p + 1 : Tk)
//   lo = max(0, window > 0 ? p - window + 1 : 0, document_start[b,t])
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;       // 0: no limit; else the last `window` keys, the query's own included
  Tensor position_base;     // [B] i32
  Tensor key_length;        // [B] i32
  Tensor document_start;    // [B, Tq] i32 or undefined; hi or more blocks the row
  bool is_checked = false;  // key_length lies in [0, Tk]: attention does not look
};

// The causal mask of a batch whose queries are the last of its keys: base keys - queries, key
// length keys.
AttentionMask causal_mask(const Context& ctx, int64_t batch, int64_t queries, int64_t keys);

struct AttentionOptions {
  double scale = 0.0;  // 0: 1 / sqrt(D)
  // Probability (b, h, t, j) is element h 2^56 + t 2^28 + j of the sequence of row b. Error when it
  // acts and H > 256 or Tq or Tk > 2^28.
  Dropout dropout;
  AttentionMask mask;
};

// composed: built from other ops, the definition. flash: one node that streams over tiles of keys.
enum class AttentionKind : uint8_t { composed, flash };
std::string_view name_of(AttentionKind kind);  // "flash"

Var attention(const Context& ctx, const Var& q, const Var& k, const Var& v,
              const AttentionOptions& options, AttentionKind kind);

Var attention_composed(const Context& ctx, const Var& q, const Var& k, const Var& v,
                       const AttentionOptions& options);
Var attention_flash(const Context& ctx, const Var& q, const Var& k, const Var& v,
                    const AttentionOptions& options);

}  // namespace xtrain
