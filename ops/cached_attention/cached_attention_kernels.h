#pragma once
// The kernel of cached_attention.h.

#include "core/dispatch.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"

namespace xtrain {

template <class T>
struct CachedAttention {
  QkNormRope options;
  int64_t batch, capacity;
  const T* packed;
  int64_t packed_stride;           // from one row to the next
  const T *q_weight, *k_weight;    // null: no norm
  const Accumulator<T>*cos, *sin;  // [positions, D/2]; null: not turned
  const int32_t *start, *added;    // [B]
  T *keys, *values;                // [B, capacity, KV, D]
  T* o;                            // [B, H, D]
};

// Whether the GPU and the sizes have the kernel: clusters of blocks (code for sm_90a), at most 8
// query heads a key head, heads of 4, 8, 16 or 32 packs, rows that begin at multiples of 16 bytes.
template <class T>
bool cached_attention_supports(const Cuda& cuda, const CachedAttention<T>& p);
template <class T>
void cached_attention_forward(const Cpu& cpu, const CachedAttention<T>& p);  // has all sizes
template <class T>
void cached_attention_forward(const Cuda& cuda, const CachedAttention<T>& p);

}  // namespace xtrain
