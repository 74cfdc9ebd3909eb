#pragma once
// A rearrangement or a region of a tensor's elements that strides can express.

#include <vector>

#include "core/tensor.h"

namespace xtrain {

struct View {
  enum class Kind : uint8_t { reshape, permute, slice };
  Kind kind = Kind::reshape;
  Shape shape;             // reshape: of the view
  std::vector<int> order;  // permute: dimension i of the view is order[i] of the base
  int dim = 0;             // slice: elements [start, start + length) of this dimension
  int64_t start = 0, length = 0;

  static View reshaped(const Shape& shape);
  static View permuted(std::vector<int> order);
  static View sliced(int dim, int64_t start, int64_t length);

  bool covers_base() const { return kind != Kind::slice; }
  bool can_apply(const Tensor& base) const;  // without a copy
  Tensor apply(const Tensor& base) const;
  // From the view back to the base's shape; needs covers_base. May copy.
  Tensor invert(const Context& ctx, const Tensor& view, const Shape& base_shape) const;
  // Whether both are slices of one dimension without a common element.
  bool disjoint_from(const View& other) const;
};

}  // namespace xtrain
