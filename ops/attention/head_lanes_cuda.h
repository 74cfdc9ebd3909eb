#pragma once
// Heads that lie over neighbouring lanes of a warp, a pack of 16 bytes in each.

#include <cstdint>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/pack.h"

namespace xtrain {

// Whether a head of this size is whole packs, and these are 4, 8, 16 or 32.
template <class T>
bool fits_lanes(int64_t head_dim) {
  const int64_t lanes = head_dim / kPackSize<T>;
  return head_dim % kPackSize<T> == 0 && lanes >= 4 && lanes <= kWarp && (lanes & (lanes - 1)) == 0;
}

// Calls f(std::integral_constant<int, kLanes>()) for a head that fits.
template <class T, class F>
void with_lanes(int64_t head_dim, F&& f) {
  switch (head_dim / kPackSize<T>) {
    case 4:
      return f(std::integral_constant<int, 4>());
    case 8:
      return f(std::integral_constant<int, 8>());
    case 16:
      return f(std::integral_constant<int, 16>());
    default:
      return f(std::integral_constant<int, 32>());
  }
}

}  // namespace xtrain
