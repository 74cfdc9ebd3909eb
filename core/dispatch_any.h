#pragma once
// From a dtype known at run time to a scalar type, for what only moves or adds elements. Ops, which
// compute in floating types alone, use dispatch.h.

#include <cstdint>

#include "core/dtype.h"

namespace xtrain {

// Calls f(T{}) with the scalar of any dtype.
template <class F>
void dispatch_any(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f64:
      return f(double{});
    case Dtype::f32:
      return f(float{});
    case Dtype::bf16:
      return f(BFloat16{});
    case Dtype::i32:
      return f(int32_t{});
    case Dtype::i64:
      return f(int64_t{});
  }
}

}  // namespace xtrain
