#pragma once
// The gated unit of Shazeer, arXiv 2002.05202, on a packed projection.
//
//   gate_up [..., 2F] holds gate, then up;  y [..., F] = silu(gate) up
//   silu(x) = x s(x), s(x) = 1 / (1 + exp(-x))
//   dgate = dy up s (1 + gate (1 - s)), dup = dy silu(gate), with s = s(gate)
//
// Kept for backward: gate_up, over which its gradient is written when nobody else holds it.

#include "autodiff/tape.h"

namespace xtrain {

Var swiglu(const Context& ctx, const Var& gate_up);

// The same from slice, silu and mul.
Var swiglu_composed(const Context& ctx, const Var& gate_up);

}  // namespace xtrain
