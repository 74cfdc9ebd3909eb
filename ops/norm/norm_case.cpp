#include <algorithm>

#include "core/error.h"
#include "ops/norm/norm.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

constexpr double kEps = 1e-5;

struct Example {
  NormKind kind;
  Shape shape;  // of x
  bool weight = true, bias = false;
};

// Shapes on both sides of the kernels' blocks of 64 rows and 256 columns.
std::vector<Example> examples() {
  std::vector<Example> list = {
      {NormKind::layer, {5, 65}, false, false}, {NormKind::layer, {5, 65}, true, false},
      {NormKind::layer, {5, 65}, false, true},  {NormKind::layer, {4, 1}, false, true},
      {NormKind::rms, {5, 65}, false, false},   {NormKind::rms, {4, 4, 4}, true, false},
  };
  for (const Shape& shape :
       {Shape{5, 65}, Shape{7}, Shape{4, 4, 4}, Shape{63, 5}, Shape{64, 5}, Shape{65, 5},
        Shape{130, 5}, Shape{2, 257}, Shape{0, 5}, Shape{3, 0}}) {
    list.push_back({NormKind::layer, shape, true, true});
    list.push_back({NormKind::rms, shape, true, false});
  }
  return list;
}

// The Var after those already taken, or an undefined one.
Var next(std::span<const Var> in, size_t& taken, bool present) {
  return present ? in[taken++] : Var();
}

OpCase example_case(const Example& e, const char* op) {
  OpCase c;
  c.op = op;
  c.variant =
      text(name_of(e.kind), " ", e.shape, e.weight ? ", weight" : "", e.bias ? ", bias" : "");
  c.inputs = {{.name = "x", .shape = e.shape}};
  const int64_t width = e.shape[e.shape.rank() - 1];
  const int64_t rows = numel_of(e.shape) / std::max<int64_t>(1, width);
  c.reduction = std::max<int64_t>({1, width, rows});
  return c;
}

void add_parameters(const Example& e, OpCase& c) {
  const Shape vector{e.shape[e.shape.rank() - 1]};
  if (e.weight) c.inputs.push_back({.name = "weight", .shape = vector, .fill = Fill::nonzero});
  if (e.bias) c.inputs.push_back({.name = "bias", .shape = vector});
}

OpCase norm_case(const Example& e) {
  OpCase c = example_case(e, "norm");
  add_parameters(e, c);
  c.run = [e](const Context& ctx, std::span<const Var> in) {
    size_t taken = 1;
    const Var weight = next(in, taken, e.weight), bias = next(in, taken, e.bias);
    return std::vector<Var>{norm(ctx, in[0], weight, bias, e.kind, kEps)};
  };
  return c;
}

OpCase add_norm_case(const Example& e) {
  OpCase c = example_case(e, "add_norm");
  c.inputs.push_back({.name = "branch", .shape = e.shape});
  add_parameters(e, c);
  const auto call = [e](auto function) {
    return [e, function](const Context& ctx, std::span<const Var> in) {
      size_t taken = 2;
      const Var weight = next(in, taken, e.weight), bias = next(in, taken, e.bias);
      const AddNorm r = function(ctx, in[0], in[1], weight, bias, e.kind, kEps);
      return std::vector<Var>{r.sum, r.normed};
    };
  };
  c.run = call(add_norm);
  c.twin = call(add_norm_composed);
  return c;
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  for (const Example& e : examples()) {
    cases.push_back(norm_case(e));
    cases.push_back(add_norm_case(e));
  }
  return cases;
}

}  // namespace xtrain
