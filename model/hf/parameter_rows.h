#pragma once
// Parameters read from and turned into the tensors of files, some rows at a time.

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/hf/element_types.h"
#include "model/hf/layout.h"
#include "model/hf/tensor_files.h"

namespace xtrain {

// Elements of one row: all sizes but the first.
int64_t row_elements(const Shape& shape);

// Rows from `first` on, as many as fit `target` exactly, row-major and as elements of type `to`.
// The tensors must have the layout's shapes and floating types.
void read_rows(const TensorFiles& files, const ParameterLayout& parameter, int64_t first,
               ElementType to, std::span<std::byte> target);

// The matrix of `rows` x `columns` items of `item` bytes, turned.
void transpose_items(std::span<const std::byte> source, int64_t rows, int64_t columns, int64_t item,
                     std::span<std::byte> target);

// Elements that are handled at a time, so that memory stays bounded whatever the tensor; and the
// rows of a shape that these are, at least one.
inline constexpr int64_t kElementsAtATime = int64_t{1} << 21;
int64_t rows_at_a_time(const Shape& shape);

}  // namespace xtrain
