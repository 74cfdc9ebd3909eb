#pragma once
// A trained tensor with its gradient.

#include <string>

#include "core/tensor.h"

namespace xtrain {

// matrix: a projection [out, in]. vector: a bias or a norm's weight. embedding: a table [rows, C].
enum class ParameterKind : uint8_t { matrix, vector, embedding };

struct Parameter {
  std::string name;
  Shape shape;
  ParameterKind kind = ParameterKind::matrix;
  bool trainable = true;

  Tensor value;  // in the dtype of the computation
  Tensor grad;   // f64 for f64, else f32; made on first use when undefined
  // Whether grad holds a sum. When false its elements mean nothing and the next writer overwrites
  // them, so that gradients never need zeroing.
  bool has_grad = false;
};

}  // namespace xtrain
