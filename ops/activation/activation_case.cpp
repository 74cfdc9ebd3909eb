#include "core/error.h"
#include "ops/activation/activation.h"
#include "ops/op_case.h"

namespace xtrain {

std::vector<OpCase> activation_cases() {
  std::vector<OpCase> cases;
  for (Activation kind :
       {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    for (const Shape& shape : {Shape{3, 65}, Shape{1}, Shape{2, 3, 4}, Shape{0, 5}}) {
      OpCase c;
      c.op = name_of(kind);
      c.variant = text(shape);
      c.inputs = {{.name = "x", .shape = shape, .fill = Fill::nonzero}};
      c.run = [kind](const Context& ctx, std::span<const Var> in) {
        return std::vector<Var>{activation(ctx, in[0], kind)};
      };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace xtrain
