#include "core/error.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

using Binary = Var (*)(const Context&, const Var&, const Var&);

struct Operands {
  Shape a, b;
};

OpCase binary_case(const char* op, Binary call, const Operands& shapes) {
  OpCase c;
  c.op = op;
  c.variant = text(shapes.a, " and ", shapes.b);
  c.inputs = {{.name = "a", .shape = shapes.a, .fill = Fill::nonzero},
              {.name = "b", .shape = shapes.b, .fill = Fill::nonzero}};
  c.run = [call](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{call(ctx, in[0], in[1])};
  };
  c.reduction = std::max<int64_t>(1, numel_of(broadcast_shape(shapes.a, shapes.b, op)));
  return c;
}

OpCase same_operand_case(const char* op, Binary call) {
  OpCase c;
  c.op = op;
  c.variant = "x and x";
  c.inputs = {{.name = "x", .shape = {2, 5}, .fill = Fill::nonzero}};
  c.run = [call](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{call(ctx, in[0], in[0])};
  };
  return c;
}

OpCase scale_case(const Shape& shape, double factor) {
  OpCase c;
  c.op = "scale";
  c.variant = text(shape, " by ", factor);
  c.inputs = {{.name = "x", .shape = shape}};
  c.run = [factor](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{scale(ctx, in[0], factor)};
  };
  return c;
}

}  // namespace

std::vector<OpCase> arithmetic_cases() {
  const std::vector<Operands> shapes = {
      {{3, 65}, {3, 65}},
      {{1}, {1}},
      {{}, {}},
      {{3, 1}, {1, 4}},
      {{}, {5, 4}},
      {{4}, {3, 4}},
      {{2, 1, 4, 1}, {2, 1, 4, 16}},
      {{2, 3, 5}, {3, 1}},
      {{2, 3, 16}, {3, 1}},
      {{2, 3, 16}, {16}},
      {{0, 5}, {0, 5}},
      {{0, 5}, {5}},
  };
  std::vector<OpCase> cases;
  const std::pair<const char*, Binary> binaries[] = {
      {"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}};
  for (const auto& [op, call] : binaries) {
    for (const Operands& s : shapes) cases.push_back(binary_case(op, call, s));
    cases.push_back(same_operand_case(op, call));
  }
  for (const Shape& shape : {Shape{3, 65}, Shape{}, Shape{0, 2}}) {
    cases.push_back(scale_case(shape, -0.75));
  }
  cases.push_back(scale_case({2, 3}, 0.0));
  return cases;
}

}  // namespace xtrain
