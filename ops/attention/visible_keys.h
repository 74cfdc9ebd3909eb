#pragma once
// The mask of attention.h as kernels read it.

#include "core/dtype.h"
#include "ops/attention/attention.h"

namespace xtrain {

// Keys first <= j < end; first == end == 0 when there are none.
struct KeyRange {
  int32_t first = 0;
  int32_t end = 0;

  XT_HOST_DEVICE bool contains(int64_t key) const { return first <= key && key < end; }
};

struct VisibleKeys {
  bool causal;
  int64_t window;
  int64_t queries, keys;
  const int32_t* position_base;   // [B]
  const int32_t* key_length;      // [B]
  const int32_t* document_start;  // [B, queries] or null

  // The mask's tensors must be contiguous and outlive this.
  VisibleKeys(const AttentionMask& mask, int64_t query_count, int64_t key_count)
      : causal(mask.causal),
        window(mask.window),
        queries(query_count),
        keys(key_count),
        position_base(mask.position_base.data<int32_t>()),
        key_length(mask.key_length.data<int32_t>()),
        document_start(mask.document_start.defined() ? mask.document_start.data<int32_t>()
                                                     : nullptr) {}

  XT_HOST_DEVICE KeyRange of(int64_t batch, int64_t query) const {
    const int64_t position = int64_t{position_base[batch]} + query;
    int64_t end = key_length[batch] < keys ? key_length[batch] : keys, first = 0;
    if (causal && position + 1 < end) end = position + 1;
    if (window > 0 && position - window + 1 > first) first = position - window + 1;
    if (document_start) {
      const int64_t start = document_start[batch * queries + query];
      if (start > first) first = start;
    }
    if (first >= end) return KeyRange{};
    return KeyRange{static_cast<int32_t>(first), static_cast<int32_t>(end)};
  }
};

}  // namespace xtrain
