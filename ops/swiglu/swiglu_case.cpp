#include "core/error.h"
#include "ops/op_case.h"
#include "ops/swiglu/swiglu.h"

namespace xtrain {

std::vector<OpCase> swiglu_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape :
       {Shape{2}, Shape{3, 10}, Shape{2, 3, 66}, Shape{0, 6}, Shape{3, 0}, Shape{2, 8194}}) {
    OpCase c;
    c.op = "swiglu";
    c.variant = text(shape);
    c.inputs = {{.name = "gate_up", .shape = shape}};
    c.run = [](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{swiglu(ctx, in[0])};
    };
    c.twin = [](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{swiglu_composed(ctx, in[0])};
    };
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace xtrain
