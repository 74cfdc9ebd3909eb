#include "core/error.h"
#include "ops/concat/concat.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

OpCase concat_case(const std::string& variant, const std::vector<Shape>& shapes, int dim) {
  OpCase c;
  c.op = "concat";
  c.variant = variant;
  for (size_t i = 0; i < shapes.size(); ++i) {
    c.inputs.push_back({.name = text("part", i), .shape = shapes[i]});
  }
  c.run = [dim](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{concat(ctx, std::vector<Var>(in.begin(), in.end()), dim)};
  };
  return c;
}

}  // namespace

std::vector<OpCase> concat_cases() {
  OpCase twice;
  twice.op = "concat";
  twice.variant = "one part twice";
  twice.inputs = {{.name = "x", .shape = {2, 3}}};
  twice.run = [](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{concat(ctx, {in[0], in[0]}, 0)};
  };
  return {
      concat_case("rows", {{2, 5}, {1, 5}, {3, 5}}, 0),
      concat_case("columns", {{3, 4}, {3, 1}, {3, 7}}, -1),
      concat_case("the middle dimension", {{2, 3, 2}, {2, 1, 2}}, 1),
      concat_case("one part", {{2, 3}}, 0),
      concat_case("an empty part", {{2, 3}, {0, 3}, {1, 3}}, 0),
      concat_case("empty parts only", {{0, 3}, {0, 3}}, 0),
      std::move(twice),
  };
}

}  // namespace xtrain
