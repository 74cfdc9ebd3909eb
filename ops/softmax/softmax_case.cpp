#include <algorithm>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/softmax/softmax.h"

namespace xtrain {

std::vector<OpCase> softmax_cases() {
  std::vector<OpCase> cases;
  for (const bool log : {false, true}) {
    for (const Shape& shape : {Shape{3, 65}, Shape{1}, Shape{4, 4, 4}, Shape{130, 64},
                               Shape{2, 1000}, Shape{0, 5}, Shape{3, 0}}) {
      OpCase c;
      c.op = log ? "log_softmax" : "softmax";
      c.variant = text(shape);
      c.inputs = {{.name = "x", .shape = shape}};
      c.run = [log](const Context& ctx, std::span<const Var> in) {
        return std::vector<Var>{log ? log_softmax(ctx, in[0]) : softmax(ctx, in[0])};
      };
      c.reduction = std::max<int64_t>(1, shape[shape.rank() - 1]);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace xtrain
