#pragma once
// How to compute a model: whatever a checkpoint survives changing.

#include <cstdint>

#include "core/dtype.h"
#include "ops/attention/attention.h"

namespace xtrain {

// What backward computes again instead of keeping: nothing, the output of the MLP's activation (its
// input is kept), all of the attention branch, or whole blocks. The fat node of the MLP never keeps
// that output, so with `fused` activations is the same as none.
enum class RecomputeLevel : uint8_t { none, activations, attention, block };

struct Exec {
  AttentionKind attention = AttentionKind::composed;
  RecomputeLevel recompute = RecomputeLevel::none;
  Dtype dtype = Dtype::f32;  // of activations and of the weights that products read
  bool fused = true;         // fat nodes instead of their composed twins

  bool operator==(const Exec&) const = default;
};

}  // namespace xtrain
