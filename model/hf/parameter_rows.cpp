#include "model/hf/parameter_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace xtrain {
namespace {

ElementType type_of(const SafetensorsEntry& entry) {
  const auto type = element_type_from_name(entry.dtype);
  check(type.has_value(), "read_rows: tensor ", entry.name, " is of ", entry.dtype);
  return *type;
}

// Rows [first, first + count) of the parameter out of a file's [columns, all_rows].
std::vector<std::byte> turned_rows(const SafetensorsEntry& entry, int64_t all_rows, int64_t first,
                                   int64_t count, int64_t columns, int64_t item) {
  std::vector<std::byte> rows(static_cast<size_t>(count * columns * item));
  for (int64_t c = 0; c < columns; ++c) {
    const std::byte* source = entry.bytes.data() + (c * all_rows + first) * item;
    for (int64_t r = 0; r < count; ++r) {
      std::memcpy(rows.data() + (r * columns + c) * item, source + r * item,
                  static_cast<size_t>(item));
    }
  }
  return rows;
}

}  // namespace

int64_t row_elements(const Shape& shape) {
  int64_t count = 1;
  for (int i = 1; i < shape.rank(); ++i) count *= shape[i];
  return count;
}

int64_t rows_at_a_time(const Shape& shape) {
  return std::clamp<int64_t>(kElementsAtATime / std::max<int64_t>(1, row_elements(shape)), 1,
                             shape[0]);
}

void read_rows(const TensorFiles& files, const ParameterLayout& parameter, int64_t first,
               ElementType to, std::span<std::byte> target) {
  const int64_t columns = row_elements(parameter.shape), row_bytes = columns * size_of(to);
  const int64_t end = first + static_cast<int64_t>(target.size()) / row_bytes;
  int64_t begin_of_piece = 0;
  for (const TensorPiece& piece : parameter.pieces) {
    const int64_t from = std::max(first, begin_of_piece);
    const int64_t count = std::min(end, begin_of_piece + piece.rows) - from;
    if (count > 0) {
      const SafetensorsEntry& entry = files.at(piece.tensor);
      const ElementType type = type_of(entry);
      const int64_t row = from - begin_of_piece, item = size_of(type);
      const auto place = target.subspan(static_cast<size_t>((from - first) * row_bytes),
                                        static_cast<size_t>(count * row_bytes));
      if (piece.transposed) {
        convert_elements(type, turned_rows(entry, piece.rows, row, count, columns, item), to,
                         place);
      } else {
        convert_elements(type,
                         entry.bytes.subspan(static_cast<size_t>(row * columns * item),
                                             static_cast<size_t>(count * columns * item)),
                         to, place);
      }
    }
    begin_of_piece += piece.rows;
  }
}

void transpose_items(std::span<const std::byte> source, int64_t rows, int64_t columns, int64_t item,
                     std::span<std::byte> target) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(target.data() + (c * rows + r) * item, source.data() + (r * columns + c) * item,
                  static_cast<size_t>(item));
    }
  }
}

}  // namespace xtrain
