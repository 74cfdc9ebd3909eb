#include <algorithm>

#include "core/error.h"
#include "ops/linear/linear.h"
#include "ops/norm_linear/norm_linear.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

constexpr double kEps = 1e-5;

struct Example {
  NormKind kind;
  Shape shape;  // of x
  int64_t out;
  bool branch, norm_weight, norm_bias, bias;
};

using Function = NormLinear (*)(const Context&, const Var&, const Var&, const NormLinearParameters&,
                                NormKind, double);

OpCall call(const Example& e, Function function) {
  return [e, function](const Context& ctx, std::span<const Var> in) {
    size_t taken = 1;
    const auto next = [&](bool present) { return present ? in[taken++] : Var(); };
    const Var branch = next(e.branch), norm_weight = next(e.norm_weight);
    const Var norm_bias = next(e.norm_bias), weight = next(true), bias = next(e.bias);
    const NormLinear r =
        function(ctx, in[0], branch, {norm_weight, norm_bias, weight, bias}, e.kind, kEps);
    return e.branch ? std::vector<Var>{r.sum, r.y} : std::vector<Var>{r.y};
  };
}

OpCase norm_linear_case(const Example& e) {
  OpCase c;
  c.op = "norm_linear";
  c.variant = text(name_of(e.kind), " ", e.shape, ", out ", e.out, e.branch ? ", branch" : "",
                   e.norm_weight ? ", norm weight" : "", e.norm_bias ? ", norm bias" : "",
                   e.bias ? ", bias" : "");
  const int64_t width = e.shape[e.shape.rank() - 1];
  const int64_t rows = numel_of(e.shape) / std::max<int64_t>(1, width);
  c.inputs = {{.name = "x", .shape = e.shape}};
  if (e.branch) c.inputs.push_back({.name = "branch", .shape = e.shape});
  if (e.norm_weight) {
    c.inputs.push_back({.name = "norm_weight", .shape = {width}, .fill = Fill::nonzero});
  }
  if (e.norm_bias) c.inputs.push_back({.name = "norm_bias", .shape = {width}});
  c.inputs.push_back({.name = "weight", .shape = {e.out, width}});
  if (e.bias) c.inputs.push_back({.name = "bias", .shape = {e.out}});
  c.reduction = std::max<int64_t>({1, width, rows, e.out});
  c.run = call(e, norm_linear);
  c.twin = call(e, norm_linear_composed);
  return c;
}

// The branch ends in a bias, whose gradient is what the norm's backward sums up on its way. With
// last_norm there is no projection behind the norm.
OpCase biased_branch_case(NormKind kind, const Shape& shape, bool last_norm) {
  OpCase c;
  c.op = "norm_linear";
  c.variant = text(name_of(kind), " ", shape, last_norm ? ", no projection" : ", out 3",
                   ", a branch with a bias");
  const int64_t width = shape[shape.rank() - 1];
  Shape narrow = shape;
  narrow[narrow.rank() - 1] = 2;
  c.inputs = {{.name = "x", .shape = shape},
              {.name = "before_branch", .shape = narrow},
              {.name = "branch_weight", .shape = {width, 2}},
              {.name = "branch_bias", .shape = {width}},
              {.name = "norm_weight", .shape = {width}, .fill = Fill::nonzero},
              {.name = "weight", .shape = {3, width}}};
  c.reduction = std::max(width, numel_of(shape) / std::max<int64_t>(1, width));
  const auto call = [=](auto add_and_norm, auto project) -> OpCall {
    return [=](const Context& ctx, std::span<const Var> in) {
      const Var branch = linear(ctx, in[1], in[2], in[3]);
      if (last_norm) {
        const AddNorm r = add_and_norm(ctx, in[0], branch, in[4], Var(), kind, kEps);
        return std::vector<Var>{r.sum, r.normed};
      }
      const NormLinear r = project(ctx, in[0], branch, {in[4], Var(), in[5], Var()}, kind, kEps);
      return std::vector<Var>{r.sum, r.y};
    };
  };
  if (last_norm) c.inputs.pop_back();
  c.run = call(add_norm, norm_linear);
  c.twin = call(add_norm_composed, norm_linear_composed);
  return c;
}

}  // namespace

std::vector<OpCase> norm_linear_cases() {
  constexpr NormKind kLayer = NormKind::layer, kRms = NormKind::rms;
  std::vector<OpCase> cases;
  for (const Example& e : std::vector<Example>{
           {kLayer, {5, 65}, 4, true, true, true, true},
           {kLayer, {5, 65}, 4, false, true, true, true},
           {kLayer, {2, 3, 8}, 3, true, false, true, false},
           {kLayer, {65, 5}, 3, true, true, false, true},
           {kLayer, {3, 264}, 7, true, true, true, true},
           {kLayer, {2, 4100}, 2, true, true, true, false},
           {kRms, {5, 65}, 4, true, true, false, false},
           {kRms, {5, 65}, 4, false, true, false, false},
           {kRms, {2, 3, 8}, 3, true, false, false, true},
           {kRms, {7}, 3, true, true, false, true},
           {kRms, {130, 16}, 3, true, true, false, false},
           {kRms, {3, 264}, 7, true, true, false, true},
           {kRms, {2, 4100}, 2, true, true, false, false},
           {kRms, {0, 5}, 3, true, true, false, true},
           {kRms, {3, 0}, 2, true, true, false, true},
           {kLayer, {3, 4}, 0, true, true, true, true},
       }) {
    cases.push_back(norm_linear_case(e));
  }
  for (NormKind kind : {kLayer, kRms}) {
    // Blocks of rows, one row of several packs a thread, rows too long for registers, no rows.
    for (const Shape& shape : {Shape{3, 45, 8}, Shape{70, 33}, Shape{5, 264}, Shape{3, 2056},
                               Shape{2, 4101}, Shape{0, 5}}) {
      for (bool last_norm : {false, true}) {
        cases.push_back(biased_branch_case(kind, shape, last_norm));
      }
    }
  }
  return cases;
}

}  // namespace xtrain
