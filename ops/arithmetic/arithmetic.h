#pragma once
// Arithmetic, element by element. Operands of one dtype (f64, f32, bf16) and device; shapes repeat
// along sizes of 1 and missing leading dimensions, as in (3, 1) + (4) -> (3, 4). An operand's
// gradient is summed over what was repeated, in f32 for bf16, and has the operand's shape.
//
//   y = a + b     da = dy             db = dy
//   y = a - b     da = dy             db = -dy
//   y = a b       da = dy b           db = dy a
//   y = a / b     da = dy / b         db = -(dy / b) (a / b)
//   y = factor x  dx = factor dy
//
// Kept for backward: nothing by add, sub and scale; by mul and div only the operands that a wanted
// gradient needs. add hands the one tensor dy to both operands that were not repeated.
// Error: dtypes or devices that differ, shapes that do not fit.

#include "autodiff/tape.h"

namespace xtrain {

enum class Arithmetic : uint8_t { add, sub, mul, div };

const char* name_of(Arithmetic kind);

Var add(const Context& ctx, const Var& a, const Var& b);
Var sub(const Context& ctx, const Var& a, const Var& b);
Var mul(const Context& ctx, const Var& a, const Var& b);
Var div(const Context& ctx, const Var& a, const Var& b);

Var scale(const Context& ctx, const Var& x, double factor);

}  // namespace xtrain
