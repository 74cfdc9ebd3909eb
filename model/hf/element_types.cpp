#include "model/hf/element_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/convert.h"
#include "core/error.h"

namespace xtrain {
namespace {

// The bits of a half; the arithmetic is done in f64, which holds every half.
struct Half {
  uint16_t bits = 0;
};

template <class F>
void dispatch_element(ElementType type, F&& f) {
  switch (type) {
    case ElementType::f64:
      return f(double{});
    case ElementType::f32:
      return f(float{});
    case ElementType::bf16:
      return f(BFloat16{});
    case ElementType::f16:
      return f(Half{});
  }
}

template <class To, class From>
To converted(From x) {
  if constexpr (std::is_same_v<From, Half>) {
    return converted<To>(f16_to_f32(x.bits));
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{f64_to_f16(static_cast<double>(x))};
  } else {
    return convert<To>(x);
  }
}

template <class From, class To>
void convert_all(std::span<const std::byte> source, std::span<std::byte> target) {
  const size_t count = source.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source.data() + i * sizeof(From), sizeof(From));
    const To to = converted<To>(from);
    std::memcpy(target.data() + i * sizeof(To), &to, sizeof(To));
  }
}

// The bits of the exponent, which infinities and NaN alone have all set.
template <class Bits, Bits kExponent>
std::optional<int64_t> first_not_finite_of(std::span<const std::byte> elements) {
  constexpr size_t kBlock = 4096;
  const size_t count = elements.size() / sizeof(Bits);
  const auto is_wrong = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, elements.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & kExponent) == kExponent;
  };
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, count);
    bool wrong = false;  // without a way out of the loop, which so becomes one of vectors
    for (size_t i = begin; i < end; ++i) wrong |= is_wrong(i);
    for (size_t i = begin; wrong && i < end; ++i) {
      if (is_wrong(i)) return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ElementType> element_type_from_name(std::string_view name) {
  for (const ElementType type :
       {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16}) {
    if (name_of(type) == name) return type;
  }
  return std::nullopt;
}

std::string_view name_of(ElementType type) {
  constexpr std::string_view kNames[] = {"F64", "F32", "BF16", "F16"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view torch_name(ElementType type) {
  constexpr std::string_view kNames[] = {"float64", "float32", "bfloat16", "float16"};
  return kNames[static_cast<size_t>(type)];
}

int64_t size_of(ElementType type) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2};
  return kSizes[static_cast<size_t>(type)];
}

ElementType element_type_of(Dtype dtype) {
  check(is_floating(dtype), "element_type_of: dtype must be floating; got ", dtype);
  return dtype == Dtype::f64   ? ElementType::f64
         : dtype == Dtype::f32 ? ElementType::f32
                               : ElementType::bf16;
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu, fraction = bits & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  // Infinity and NaN have the largest exponent of either type.
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

uint16_t f64_to_f16(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0) return sign | 0x7C00;  // halfway to the first value beyond the largest
  if (magnitude == 0.0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  // The value of the last bit; that of subnormals below 2^-14.
  const int last = std::max(exponent - 11, -24);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -last)));
  // Units of 2^10 and more carry the exponent's first step in them, as IEEE's order of bits has it.
  return static_cast<uint16_t>(sign | (units + (static_cast<uint32_t>(last + 24) << 10)));
}

void convert_elements(ElementType from, std::span<const std::byte> source, ElementType to,
                      std::span<std::byte> target) {
  const size_t from_size = static_cast<size_t>(size_of(from));
  const size_t to_size = static_cast<size_t>(size_of(to));
  check(source.size() % from_size == 0 && source.size() / from_size * to_size == target.size(),
        "convert_elements: counts must agree; got ", source.size(), " bytes of ", name_of(from),
        " to ", target.size(), " bytes of ", name_of(to));
  if (from == to) {
    if (!source.empty()) std::memcpy(target.data(), source.data(), source.size());
    return;
  }
  dispatch_element(from, [&](auto a) {
    dispatch_element(to, [&](auto b) { convert_all<decltype(a), decltype(b)>(source, target); });
  });
}

std::optional<int64_t> first_not_finite(ElementType type, std::span<const std::byte> elements) {
  switch (type) {
    case ElementType::f64:
      return first_not_finite_of<uint64_t, 0x7FF0'0000'0000'0000>(elements);
    case ElementType::f32:
      return first_not_finite_of<uint32_t, 0x7F80'0000>(elements);
    case ElementType::bf16:
      return first_not_finite_of<uint16_t, 0x7F80>(elements);
    case ElementType::f16:
      return first_not_finite_of<uint16_t, 0x7C00>(elements);
  }
  fail("first_not_finite: unknown type");
}

}  // namespace xtrain
