#pragma once
// Conversion between element types with one rounding, the same bits on every device.

#include <type_traits>

#include "core/dtype.h"

namespace xtrain {

// Through f32 a value would round twice. Rounding to f32 "to odd" (what is cut off sets the last
// bit) leaves enough to tell on which side of a tie it lies.
XT_HOST_DEVICE inline BFloat16 round_to_bf16(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  const double error = x - back;
  if (error == 0.0 || error != error) return nearest;
  uint32_t bits;
  std::memcpy(&bits, &nearest, 4);
  if ((back < 0.0 ? -back : back) > (x < 0.0 ? -x : x)) --bits;
  bits |= 1u;
  float odd;
  std::memcpy(&odd, &bits, 4);
  return odd;
}

template <class To, class From>
XT_HOST_DEVICE To convert(From x) {
  if constexpr (std::is_same_v<To, BFloat16> && !std::is_same_v<From, BFloat16> &&
                !std::is_same_v<From, float>) {
    return round_to_bf16(static_cast<double>(x));
  } else {
    return static_cast<To>(x);
  }
}

// The type in which From is added to To.
template <class From, class To>
using Wider =
    std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;

// target + source, rounded once.
template <class From, class To>
XT_HOST_DEVICE To add_converted(To target, From source) {
  using Sum = Wider<From, To>;
  return convert<To>(static_cast<Sum>(target) + static_cast<Sum>(source));
}

}  // namespace xtrain
