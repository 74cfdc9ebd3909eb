#include "autodiff/view.h"

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {

View View::reshaped(const Shape& shape) {
  View view;
  view.kind = Kind::reshape;
  view.shape = shape;
  return view;
}

View View::permuted(std::vector<int> order) {
  View view;
  view.kind = Kind::permute;
  view.order = std::move(order);
  return view;
}

View View::sliced(int dim, int64_t start, int64_t length) {
  View view;
  view.kind = Kind::slice;
  view.dim = dim;
  view.start = start;
  view.length = length;
  return view;
}

bool View::can_apply(const Tensor& base) const {
  return kind != Kind::reshape || base.can_reshape(shape);
}

Tensor View::apply(const Tensor& base) const {
  switch (kind) {
    case Kind::reshape:
      return base.reshape(shape);
    case Kind::permute:
      return base.permute(order);
    case Kind::slice:
      return base.slice(dim, start, length);
  }
  fail("view: unknown kind");
}

Tensor View::invert(const Context& ctx, const Tensor& view, const Shape& base_shape) const {
  check(covers_base(), "view: a slice does not determine its base");
  if (kind == Kind::reshape) {
    return (view.can_reshape(base_shape) ? view : contiguous(ctx, view)).reshape(base_shape);
  }
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int>(i);
  return view.permute(inverse);
}

bool View::disjoint_from(const View& other) const {
  if (kind != Kind::slice || other.kind != Kind::slice || dim != other.dim) return false;
  return start + length <= other.start || other.start + other.length <= start;
}

}  // namespace xtrain
