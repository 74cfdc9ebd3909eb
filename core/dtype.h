#pragma once
// Element types. bf16 is stored as its upper 16 bits of an IEEE f32 and rounds to nearest even.

#include <cstdint>
#include <cstring>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#if defined(__CUDACC__)
#define XT_HOST_DEVICE __host__ __device__
#else
#define XT_HOST_DEVICE
#endif

namespace xtrain {

enum class Dtype : uint8_t { f64, f32, bf16, i32, i64 };

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  XT_HOST_DEVICE BFloat16(float value) {  // NOLINT: arithmetic reads as with the built-in types
    uint32_t u;
    std::memcpy(&u, &value, 4);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    // Rounding a NaN's payload could carry into infinity, so a NaN is only truncated and quieted.
    bits = is_nan ? static_cast<uint16_t>((u >> 16) | 0x40u)
                  : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  XT_HOST_DEVICE operator float() const {  // NOLINT
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
  }
};
static_assert(sizeof(BFloat16) == 2);

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<double> : std::integral_constant<Dtype, Dtype::f64> {};
template <>
struct DtypeOf<float> : std::integral_constant<Dtype, Dtype::f32> {};
template <>
struct DtypeOf<BFloat16> : std::integral_constant<Dtype, Dtype::bf16> {};
template <>
struct DtypeOf<int32_t> : std::integral_constant<Dtype, Dtype::i32> {};
template <>
struct DtypeOf<int64_t> : std::integral_constant<Dtype, Dtype::i64> {};

template <class T>
inline constexpr Dtype dtype_of = DtypeOf<std::remove_const_t<T>>::value;

// The type in which values of T are summed and statistics are kept: f64 for f64, else f32.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline constexpr bool is_floating(Dtype d) {
  return d == Dtype::f64 || d == Dtype::f32 || d == Dtype::bf16;
}

// The dtype of Accumulator: f64 for f64, else f32.
inline constexpr Dtype accumulator_dtype(Dtype d) {
  return d == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

inline constexpr int64_t size_of(Dtype d) {
  switch (d) {
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::bf16:
      return 2;
  }
  return 0;
}

// Distance from 1 to the next larger number of the dtype.
inline constexpr double epsilon_of(Dtype d) {
  return d == Dtype::f64 ? 0x1p-52 : d == Dtype::f32 ? 0x1p-23 : d == Dtype::bf16 ? 0x1p-7 : 0.0;
}

std::string_view name_of(Dtype d);             // "f32"
Dtype dtype_from_name(std::string_view name);  // throws InputError naming the five names
std::ostream& operator<<(std::ostream& out, Dtype d);

}  // namespace xtrain
