#include <algorithm>

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/op_case.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

OpCase linear_case(std::string variant, const Shape& x, int64_t out, bool biased, OpCall run) {
  OpCase c;
  c.op = "linear";
  c.variant = std::move(variant);
  const int64_t in = x[x.rank() - 1];
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x[i];
  c.inputs = {{.name = "x", .shape = x}, {.name = "weight", .shape = {out, in}}};
  if (biased) c.inputs.push_back({.name = "bias", .shape = {out}});
  c.reduction = std::max({int64_t{1}, in, out, rows});
  c.run = std::move(run);
  return c;
}

std::vector<Var> affine(const Context& ctx, std::span<const Var> in) {
  return {linear(ctx, in[0], in[1], in.size() > 2 ? in[2] : Var())};
}

}  // namespace

std::vector<OpCase> linear_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& x, int64_t out, bool biased) {
    const std::string variant = text("x ", x, ", out ", out, biased ? ", bias" : "");
    cases.push_back(linear_case(variant, x, out, biased, affine));
  };
  add({1}, 1, true);
  add({5}, 3, true);
  add({4, 6}, 3, false);
  add({2, 3, 33}, 5, true);
  add({65, 3}, 63, true);  // below, at and above the block of columns of the bias's gradient
  add({64, 3}, 64, true);
  add({255, 2}, 65, true);  // and of rows
  add({256, 2}, 5, true);
  add({257, 2}, 5, true);
  add({0, 4}, 3, true);
  add({2, 0}, 3, true);
  add({3, 4}, 0, true);
  cases.push_back(linear_case("the middle columns of x", {2, 3, 4}, 5, true,
                              [](const Context& ctx, std::span<const Var> in) {
                                const Var middle = slice(ctx, in[0], 2, 1, 2);
                                const Var weight = slice(ctx, in[1], 1, 2, 2);
                                return std::vector<Var>{linear(ctx, middle, weight, in[2])};
                              }));
  cases.push_back(linear_case("rows of x that do not lie evenly apart", {3, 2, 4}, 5, true,
                              [](const Context& ctx, std::span<const Var> in) {
                                const Var swapped = transpose(ctx, in[0], 0, 1);
                                return std::vector<Var>{linear(ctx, swapped, in[1], in[2])};
                              }));
  cases.push_back(linear_case(
      "everything used twice", {3, 4}, 4, true, [](const Context& ctx, std::span<const Var> in) {
        const Var once = linear(ctx, in[0], in[1], in[2]);
        return std::vector<Var>{linear(ctx, once, in[1], in[2]), in[0], once};
      }));
  return cases;
}

}  // namespace xtrain
