#include <algorithm>

#include "core/error.h"
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
  return cases;
}

}  // namespace xtrain
