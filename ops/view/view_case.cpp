#include "ops/op_case.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

OpCase view_case(std::string op, std::string variant, const Shape& shape, OpCall run) {
  OpCase c;
  c.op = std::move(op);
  c.variant = std::move(variant);
  c.inputs = {{.name = "x", .shape = shape}};
  c.run = std::move(run);
  return c;
}

}  // namespace

std::vector<OpCase> view_cases() {
  using Inputs = std::span<const Var>;
  using Outputs = std::vector<Var>;
  return {
      view_case("reshape", "(4, 6) to (2, 2, 6)", {4, 6},
                [](const Context& ctx, Inputs x) {
                  return Outputs{reshape(ctx, x[0], {2, 2, 6})};
                }),
      view_case("reshape", "of a transpose, which copies", {4, 6},
                [](const Context& ctx, Inputs x) {
                  return Outputs{reshape(ctx, transpose(ctx, x[0], 0, 1), {3, 8})};
                }),
      view_case("reshape", "nothing", {0, 6},
                [](const Context& ctx, Inputs x) {
                  return Outputs{reshape(ctx, x[0], {3, 0})};
                }),
      view_case("compact", "of a slice", {3, 7},
                [](const Context& ctx, Inputs x) {
                  return Outputs{compact(ctx, slice(ctx, x[0], 1, 2, 3))};
                }),
      view_case("compact", "of a transpose, and beside it", {4, 6},
                [](const Context& ctx, Inputs x) {
                  const Var turned = transpose(ctx, x[0], 0, 1);
                  return Outputs{compact(ctx, turned), turned};
                }),
      view_case("compact", "nothing", {0, 6},
                [](const Context& ctx, Inputs x) { return Outputs{compact(ctx, x[0])}; }),
      view_case("transpose", "(3, 5)", {3, 5},
                [](const Context& ctx, Inputs x) { return Outputs{transpose(ctx, x[0], 0, 1)}; }),
      view_case("permute", "(2, 3, 4) by (2, 0, 1)", {2, 3, 4},
                [](const Context& ctx, Inputs x) {
                  return Outputs{permute(ctx, x[0], {2, 0, 1})};
                }),
      view_case("slice", "with a hole on both sides", {3, 7},
                [](const Context& ctx, Inputs x) { return Outputs{slice(ctx, x[0], 1, 2, 3)}; }),
      view_case("slice", "two that overlap", {3, 7},
                [](const Context& ctx, Inputs x) {
                  return Outputs{slice(ctx, x[0], 1, 1, 4), slice(ctx, x[0], 1, 3, 3),
                                 slice(ctx, x[0], 0, 1, 2)};
                }),
      view_case("split", "(2, 9) into 4, 3, 2", {2, 9},
                [](const Context& ctx, Inputs x) {
                  return split(ctx, x[0], 1, {4, 3, 2});
                }),
      view_case("split", "beside a use of the whole", {2, 9},
                [](const Context& ctx, Inputs x) {
                  Outputs outputs = split(ctx, x[0], 1, {4, 5});
                  outputs.push_back(x[0]);
                  return outputs;
                }),
      view_case("split_heads", "and merged again", {2, 3, 8},
                [](const Context& ctx, Inputs x) {
                  const Var heads = split_heads(ctx, x[0], 4);
                  return Outputs{heads, merge_heads(ctx, transpose(ctx, heads, 1, 2))};
                }),
  };
}

}  // namespace xtrain
