#pragma once
// A tensor's elements, for tests to compare.

#include <vector>

#include "core/copy.h"

namespace xtrain {

// In row-major order, whatever the dtype.
inline std::vector<double> as_doubles(const Context& ctx, const Tensor& x) {
  return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
}

}  // namespace xtrain
