#include "core/error.h"
#include "ops/add_relu/add_relu.h"
#include "ops/op_case.h"

namespace xtrain {

std::vector<OpCase> add_relu_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : {Shape{3, 65}, Shape{1}, Shape{}, Shape{2, 3, 4}, Shape{0, 5}}) {
    OpCase c;
    c.op = "add_relu";
    c.variant = text(shape);
    c.inputs = {{.name = "a", .shape = shape}, {.name = "b", .shape = shape}};
    c.run = [](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{add_relu(ctx, in[0], in[1])};
    };
    c.twin = [](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{add_relu_composed(ctx, in[0], in[1])};
    };
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace xtrain
