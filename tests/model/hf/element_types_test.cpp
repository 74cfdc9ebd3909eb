// Floating types of files.

#include "model/hf/element_types.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "support/catch.h"

using namespace xtrain;

namespace {

template <class To, class From>
std::vector<To> converted(ElementType from, const std::vector<From>& source, ElementType to) {
  std::vector<To> target(source.size());
  convert_elements(from, std::as_bytes(std::span(source)), to,
                   std::as_writable_bytes(std::span(target)));
  return target;
}

}  // namespace

TEST_CASE("halves have IEEE's values", "[element_types]") {
  CHECK(f16_to_f32(0x0000) == 0.0f);
  CHECK(std::signbit(f16_to_f32(0x8000)));
  CHECK(f16_to_f32(0x3C00) == 1.0f);
  CHECK(f16_to_f32(0xC000) == -2.0f);
  CHECK(f16_to_f32(0x3555) == 0.333251953125f);
  CHECK(f16_to_f32(0x7BFF) == 65504.0f);
  CHECK(f16_to_f32(0x0400) == 0x1p-14f);         // the smallest normal
  CHECK(f16_to_f32(0x03FF) == 1023 * 0x1p-24f);  // the largest subnormal
  CHECK(f16_to_f32(0x0001) == 0x1p-24f);
  CHECK(f16_to_f32(0x8001) == -0x1p-24f);
  CHECK(f16_to_f32(0x7C00) == std::numeric_limits<float>::infinity());
  CHECK(f16_to_f32(0xFC00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(f16_to_f32(0x7E00)));
  CHECK(std::isnan(f16_to_f32(0xFC01)));
}

TEST_CASE("every half comes back from f32 and f64", "[element_types]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    const uint16_t back = f64_to_f16(value);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(f16_to_f32(back)));
    } else {
      REQUIRE(back == bits);
    }
  }
}

TEST_CASE("halves are rounded to nearest even, once", "[element_types]") {
  CHECK(f64_to_f16(1.0 + 0x1p-11) == 0x3C00);            // a tie, down to even
  CHECK(f64_to_f16(1.0 + 3 * 0x1p-11) == 0x3C02);        // a tie, up to even
  CHECK(f64_to_f16(1.0 + 0x1p-11 + 0x1p-40) == 0x3C01);  // f32 would have made it a tie
  CHECK(f64_to_f16(0x1p-25) == 0x0000);
  CHECK(f64_to_f16(0x1p-25 + 0x1p-60) == 0x0001);
  CHECK(f64_to_f16(2047.5 * 0x1p-25) == 0x0400);  // a subnormal that rounds to the first normal
  CHECK(f64_to_f16(2047.75) == 0x6800);           // carries into the exponent
  CHECK(f64_to_f16(65519.99) == 0x7BFF);
  CHECK(f64_to_f16(65520.0) == 0x7C00);
  CHECK(f64_to_f16(-1e300) == 0xFC00);
  CHECK(f64_to_f16(-0.0) == 0x8000);
}

TEST_CASE("elements are converted in every direction", "[element_types]") {
  const std::vector<double> values{0.0, -1.5, 0.25, 384.0, -0x1p-14};  // exact in every type
  for (const ElementType type :
       {ElementType::f64, ElementType::f32, ElementType::bf16, ElementType::f16}) {
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(type)));
    convert_elements(ElementType::f64, std::as_bytes(std::span(values)), type, bytes);
    std::vector<double> back(values.size());
    convert_elements(type, bytes, ElementType::f64, std::as_writable_bytes(std::span(back)));
    INFO(name_of(type));
    CHECK(back == values);
  }
  // From f64 to bf16 there is one rounding: through f32 this would be a tie.
  const double above_tie = 1.0 + 0x1p-8 + 0x1p-40;
  CHECK(converted<uint16_t, double>(ElementType::f64, {above_tie}, ElementType::bf16)[0] == 0x3F81);
}

TEST_CASE("equal types are copied bit for bit", "[element_types]") {
  const std::vector<uint32_t> f32{0x7F800001, 0xFFC12345, 0x80000000, 1};  // NaNs with payloads
  CHECK(converted<uint32_t>(ElementType::f32, f32, ElementType::f32) == f32);
  const std::vector<uint16_t> f16{0x7C01, 0xFE12, 0x8000, 1};
  CHECK(converted<uint16_t>(ElementType::f16, f16, ElementType::f16) == f16);
}

TEST_CASE("names and sizes of element types", "[element_types]") {
  CHECK(element_type_from_name("F16") == ElementType::f16);
  CHECK_FALSE(element_type_from_name("I32").has_value());
  CHECK_FALSE(element_type_from_name("f32").has_value());
  CHECK(size_of(ElementType::f64) == 8);
  CHECK(torch_name(ElementType::bf16) == "bfloat16");
  std::vector<std::byte> three(3);
  CHECK_THROWS_AS(convert_elements(ElementType::f16, three, ElementType::f32, three), Error);
}

namespace {

template <class Bits>
void check_finds(ElementType type, Bits largest) {
  INFO(name_of(type));
  std::vector<Bits> bits(9001, largest);
  const auto found = [&] { return first_not_finite(type, std::as_bytes(std::span(bits))); };
  const Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
  for (const Bits finite : {Bits(0), Bits(1), sign, Bits(sign | largest)}) {
    bits[4100] = finite;
    CHECK_FALSE(found().has_value());
  }
  const Bits infinity = largest + 1, nan = infinity | 1;
  for (const size_t place : {9000, 8191, 4096, 4095, 1, 0}) {
    for (const Bits wrong : {Bits(sign | infinity), infinity, Bits(sign | nan), nan}) {
      bits[place] = wrong;  // those behind it are wrong already
      CHECK(found() == static_cast<int64_t>(place));
    }
  }
}

}  // namespace

TEST_CASE("the first element that is no finite number is found", "[element_types]") {
  check_finds<uint64_t>(ElementType::f64, 0x7FEF'FFFF'FFFF'FFFF);
  check_finds<uint32_t>(ElementType::f32, 0x7F7F'FFFF);
  check_finds<uint16_t>(ElementType::bf16, 0x7F7F);
  check_finds<uint16_t>(ElementType::f16, 0x7BFF);
  CHECK_FALSE(first_not_finite(ElementType::f32, {}).has_value());
}
