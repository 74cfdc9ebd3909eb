#pragma once
// A model's tensors as another layout wants them.

#include <optional>
#include <vector>

#include "model/hf/element_types.h"
#include "model/hf/layout.h"
#include "model/hf/tensor_writer.h"
#include "model/model_folder.h"

namespace xtrain {

// The tensors of `layout`, to be written from the folder's, which must outlive them. A parameter
// may have fewer rows than in the folder: the first ones are taken. Without a dtype a tensor keeps
// that of the folder, or the narrowest that holds all parts of it. Writing throws Error for a value
// that is finite and too large for the dtype.
std::vector<TensorToWrite> tensors_in_layout(const ModelFolder& folder, const ModelLayout& layout,
                                             std::optional<ElementType> dtype);

// A tensor of a file, in the dtype where it is floating, else as it is.
TensorToWrite tensor_as(const SafetensorsEntry& entry, std::optional<ElementType> dtype);

}  // namespace xtrain
