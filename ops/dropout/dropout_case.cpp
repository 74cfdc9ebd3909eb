#include "core/error.h"
#include "ops/dropout/dropout.h"
#include "ops/op_case.h"

namespace xtrain {

std::vector<OpCase> dropout_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : {Shape{3, 65}, Shape{2, 129}, Shape{1}, Shape{4}, Shape{2, 3, 4},
                             Shape{0, 5}, Shape{5, 0}}) {
    for (double p : {0.0, 0.3}) {
      OpCase c;
      c.op = "dropout";
      c.variant = text(shape, ", p ", p);
      c.inputs = {{.name = "x", .shape = shape}};
      c.run = [p](const Context& ctx, std::span<const Var> in) {
        return std::vector<Var>{dropout(ctx, in[0], {.p = p, .site = 3})};
      };
      c.dropout = true;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace xtrain
