// The slope of GELU at 1, Phi(1) + phi(1), from the installed library.
#include <cmath>
#include <iostream>

#include "ops/activation/activation.h"

int main() {
  const xtrain::Context ctx = xtrain::cpu_context();
  xtrain::Tape tape(ctx);
  const xtrain::Var x = tape.leaf(xtrain::from_host<double>(ctx, {1.0}, {1}));
  tape.backward(xtrain::gelu(ctx, x));
  const double slope = xtrain::to_host<double>(ctx, tape.grad(x))[0];
  std::cout << "gelu'(1) = " << slope << "\n";
  return std::abs(slope - 1.0833154705876) < 1e-12 ? 0 : 1;
}
