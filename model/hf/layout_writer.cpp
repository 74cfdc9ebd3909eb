#include "model/hf/layout_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "model/hf/parameter_rows.h"

namespace xtrain {
namespace {

ElementType wider(ElementType a, ElementType b) {
  if (a == b) return a;
  return a == ElementType::f64 || b == ElementType::f64 ? ElementType::f64 : ElementType::f32;
}

ElementType kept_type(const TensorFiles& files, const ParameterLayout& parameter) {
  std::optional<ElementType> kept;
  for (const TensorPiece& piece : parameter.pieces) {
    const ElementType type = *element_type_from_name(files.at(piece.tensor).dtype);
    kept = kept ? wider(*kept, type) : type;
  }
  return *kept;
}

bool is_infinite(ElementType type, const std::byte* element) {
  double value = 0.0;
  convert_elements(type, {element, static_cast<size_t>(size_of(type))}, ElementType::f64,
                   std::as_writable_bytes(std::span(&value, 1)));
  return std::isinf(value);
}

// Only F16 ends before the values that weights may have.
void check_in_range(ElementType from, std::span<const std::byte> source, ElementType to,
                    std::span<const std::byte> target, const std::string& tensor) {
  if (to != ElementType::f16 || from == to) return;
  const size_t from_size = static_cast<size_t>(size_of(from));
  for (size_t i = 0; i < target.size() / 2; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, target.data() + 2 * i, 2);
    if ((bits & 0x7FFF) != 0x7C00 || is_infinite(from, source.data() + i * from_size)) continue;
    fail("tensor ", tensor, ": has a value that is too large for F16; use another dtype");
  }
}

std::vector<std::byte> converted(ElementType from, std::span<const std::byte> source,
                                 ElementType to, const std::string& tensor) {
  std::vector<std::byte> target(source.size() / static_cast<size_t>(size_of(from)) *
                                static_cast<size_t>(size_of(to)));
  convert_elements(from, source, to, target);
  check_in_range(from, source, to, target, tensor);
  return target;
}

// Rows of a parameter that make up one tensor of the target.
struct Source {
  const ModelFolder& folder;
  std::string parameter;
  int64_t first_row;
  TensorPiece piece;
  ElementType from, to;
};

void write_rows(const Source& s, const TensorToWrite::Put& put) {
  const ParameterLayout& layout = s.folder.layout_of(s.parameter);
  const int64_t columns = row_elements(layout.shape);
  // A turned tensor needs all its rows at once.
  const int64_t block = s.piece.transposed ? s.piece.rows : rows_at_a_time(layout.shape);
  for (int64_t row = 0; row < s.piece.rows; row += block) {
    const int64_t count = std::min(block, s.piece.rows - row);
    std::vector<std::byte> rows(static_cast<size_t>(count * columns * size_of(s.from)));
    read_rows(s.folder.tensors(), layout, s.first_row + row, s.from, rows);
    if (s.piece.transposed) {
      std::vector<std::byte> turned(rows.size());
      transpose_items(rows, count, columns, size_of(s.from), turned);
      rows = std::move(turned);
    }
    put(converted(s.from, rows, s.to, s.piece.tensor));
  }
}

}  // namespace

std::vector<TensorToWrite> tensors_in_layout(const ModelFolder& folder, const ModelLayout& layout,
                                             std::optional<ElementType> dtype) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterLayout& parameter : layout.parameters) {
    const ParameterLayout& source = folder.layout_of(parameter.parameter);
    const ElementType from = kept_type(folder.tensors(), source), to = dtype.value_or(from);
    int64_t row = 0;
    for (const TensorPiece& piece : parameter.pieces) {
      check(row + piece.rows <= source.shape[0] &&
                row_elements(parameter.shape) == row_elements(source.shape),
            "tensors_in_layout: ", piece.tensor, " does not lie within ", parameter.parameter, " ",
            source.shape);
      const Source rows{folder, parameter.parameter, row, piece, from, to};
      tensors.push_back(
          {{piece.tensor, std::string(name_of(to)), {piece.shape.begin(), piece.shape.end()}},
           [rows](const TensorToWrite::Put& put) { write_rows(rows, put); }});
      row += piece.rows;
    }
  }
  return tensors;
}

TensorToWrite tensor_as(const SafetensorsEntry& entry, std::optional<ElementType> dtype) {
  const std::optional<ElementType> from = element_type_from_name(entry.dtype);
  if (!from || !dtype || from == dtype) {
    return {entry, [&entry](const TensorToWrite::Put& put) { put(entry.bytes); }};
  }
  const auto write = [&entry, from = *from, to = *dtype](const TensorToWrite::Put& put) {
    const size_t block = static_cast<size_t>(kElementsAtATime * size_of(from));
    for (size_t at = 0; at < entry.bytes.size(); at += block) {
      const auto some = entry.bytes.subspan(at, std::min(block, entry.bytes.size() - at));
      put(converted(from, some, to, entry.name));
    }
  };
  return {{entry.name, std::string(name_of(*dtype)), entry.shape}, write};
}

}  // namespace xtrain
