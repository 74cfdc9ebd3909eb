#pragma once
// Elementary functions, element by element. y has the shape and dtype of x.
//
//   exp      y = e^x                dx = dy y                keeps y
//   log      y = ln x               dx = dy / x              keeps x
//   tanh     y = tanh x             dx = dy (1 - y^2)        keeps y
//   sigmoid  y = 1 / (1 + e^-x)     dx = dy y (1 - y)        keeps y
//   rsqrt    y = 1 / sqrt x         dx = -dy y^3 / 2         keeps y
//
// Outside a function's domain the result is IEEE's: log 0 is -infinity, rsqrt 0 is infinity, and
// both are NaN below.

#include "autodiff/tape.h"

namespace xtrain {

enum class Elementary : uint8_t { exp, log, tanh, sigmoid, rsqrt };

const char* name_of(Elementary kind);

Var elementary(const Context& ctx, const Var& x, Elementary kind);

inline Var exp(const Context& ctx, const Var& x) {
  return elementary(ctx, x, Elementary::exp);
}
inline Var log(const Context& ctx, const Var& x) {
  return elementary(ctx, x, Elementary::log);
}
inline Var tanh(const Context& ctx, const Var& x) {
  return elementary(ctx, x, Elementary::tanh);
}
inline Var sigmoid(const Context& ctx, const Var& x) {
  return elementary(ctx, x, Elementary::sigmoid);
}
inline Var rsqrt(const Context& ctx, const Var& x) {
  return elementary(ctx, x, Elementary::rsqrt);
}

}  // namespace xtrain
