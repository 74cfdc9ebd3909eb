#pragma once
// The floating types that files hold, F16 among them, which nothing computes in.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace xtrain {

enum class ElementType : uint8_t { f64, f32, bf16, f16 };

// "F32" as safetensors files say it; none for types that are not floating or not read.
std::optional<ElementType> element_type_from_name(std::string_view name);
std::string_view name_of(ElementType type);
std::string_view torch_name(ElementType type);  // "float32" as PyTorch says it
int64_t size_of(ElementType type);
ElementType element_type_of(Dtype dtype);  // Error for integers

// IEEE 754 half precision. To f32 exactly, subnormals, infinities and NaN among them.
float f16_to_f32(uint16_t bits);
// Rounded once, to nearest even; beyond 65504 infinity.
uint16_t f64_to_f16(double value);

// Every element of `source` as one of `target`, rounded once, to nearest even; equal types are
// copied bit for bit. Neither span need be aligned. Error when the counts differ.
void convert_elements(ElementType from, std::span<const std::byte> source, ElementType to,
                      std::span<std::byte> target);

// The place of the first element that is infinite or not a number; none where all are finite. The
// span need not be aligned.
std::optional<int64_t> first_not_finite(ElementType type, std::span<const std::byte> elements);

}  // namespace xtrain
