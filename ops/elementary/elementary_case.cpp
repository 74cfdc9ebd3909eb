#include "core/error.h"
#include "ops/elementary/elementary.h"
#include "ops/op_case.h"

namespace xtrain {

std::vector<OpCase> elementary_cases() {
  std::vector<OpCase> cases;
  for (Elementary kind : {Elementary::exp, Elementary::log, Elementary::tanh, Elementary::sigmoid,
                          Elementary::rsqrt}) {
    const bool positive_only = kind == Elementary::log || kind == Elementary::rsqrt;
    for (const Shape& shape : {Shape{3, 65}, Shape{1}, Shape{}, Shape{2, 3, 4}, Shape{0, 5}}) {
      OpCase c;
      c.op = name_of(kind);
      c.variant = text(shape);
      c.inputs = {
          {.name = "x", .shape = shape, .fill = positive_only ? Fill::positive : Fill::normal}};
      c.run = [kind](const Context& ctx, std::span<const Var> in) {
        return std::vector<Var>{elementary(ctx, in[0], kind)};
      };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace xtrain
