#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/activation_linear/activation_linear.h"
#include "ops/linear/linear.h"
#include "ops/op_case.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

using Call = std::function<Var(const Context&, const Var& x, const Var& weight, const Var& bias)>;

OpCall op_call(const Call& call) {
  return [call](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{call(ctx, in[0], in[1], in.size() > 2 ? in[2] : Var())};
  };
}

struct Sizes {
  Shape rows;  // the leading sizes of x
  int64_t hidden, out;
  bool biased;
};

OpCase activation_linear_case(const Sizes& s, const std::string& name, int64_t x_width, Fill fill,
                              const Call& run, const Call& twin) {
  OpCase c;
  c.op = name;
  Shape x = s.rows;
  x.push_back(x_width);
  c.variant = text("x ", x, ", out ", s.out, s.biased ? ", bias" : "");
  c.inputs = {{.name = "x", .shape = x, .fill = fill},
              {.name = "weight", .shape = {s.out, s.hidden}}};
  if (s.biased) c.inputs.push_back({.name = "bias", .shape = {s.out}});
  c.reduction = std::max({int64_t{1}, numel_of(s.rows), s.hidden, s.out});
  c.run = op_call(run);
  c.twin = op_call(twin);
  return c;
}

OpCase case_of(const Sizes& s, Activation kind) {
  const auto with = [kind](auto function) {
    return [kind, function](const Context& ctx, const Var& x, const Var& weight, const Var& bias) {
      return function(ctx, x, kind, weight, bias);
    };
  };
  return activation_linear_case(s, text(name_of(kind), "_linear"), s.hidden, Fill::nonzero,
                                with(activation_linear), with(activation_linear_composed));
}

// x ends in a bias, whose gradient is what the activation's backward sums up on its way.
OpCase biased_input_case(const Shape& rows, int64_t hidden, Activation kind) {
  OpCase c = case_of({rows, hidden, 3, true}, kind);
  c.variant += ", x with a bias";
  Shape narrow = rows;
  narrow.push_back(2);
  c.inputs[0] = {.name = "before_x", .shape = narrow};
  c.inputs.push_back({.name = "x_weight", .shape = {hidden, 2}});
  c.inputs.push_back({.name = "x_bias", .shape = {hidden}});
  for (OpCall* call : {&c.run, &c.twin}) {
    *call = [plain = *call](const Context& ctx, std::span<const Var> in) {
      return plain(ctx, std::array{linear(ctx, in[0], in[3], in[4]), in[1], in[2]});
    };
  }
  return c;
}

}  // namespace

std::vector<OpCase> activation_linear_cases() {
  std::vector<OpCase> cases;
  const std::vector<Sizes> all_sizes{
      {{1}, 1, 1, true}, {{3}, 5, 4, false}, {{2, 3}, 33, 5, true}, {{7}, 1032, 3, true},
      {{0}, 4, 3, true}, {{2}, 0, 3, true},  {{3}, 4, 0, true}};
  for (const Sizes& s : all_sizes) {
    cases.push_back(activation_linear_case(s, "swiglu_linear", 2 * s.hidden, Fill::normal,
                                           swiglu_linear, swiglu_linear_composed));
    cases.push_back(case_of(s, Activation::gelu_tanh));
  }
  for (Activation kind : {Activation::relu, Activation::silu, Activation::gelu}) {
    cases.push_back(case_of({{2, 3}, 65, 5, true}, kind));
  }
  // Blocks of rows, strips of columns, single elements and packs.
  for (const auto& [rows, hidden] : {std::pair{Shape{3, 45}, int64_t{8}},
                                     {{2, 65}, 33},
                                     {{1}, 1},
                                     {{7}, 1032},
                                     {{0}, 4},
                                     {{3}, 0}}) {
    cases.push_back(biased_input_case(rows, hidden, Activation::gelu_tanh));
  }
  for (Activation kind : {Activation::silu, Activation::gelu}) {
    cases.push_back(biased_input_case({2, 65}, 40, kind));
  }
  // The input is needed elsewhere too, so nothing may be written over it.
  OpCase shared = cases[4];
  shared.variant += ", x used twice";
  shared.run = [run = shared.run](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{run(ctx, in)[0], slice(ctx, in[0], -1, 0, 33)};
  };
  shared.twin = [twin = shared.twin](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{twin(ctx, in)[0], slice(ctx, in[0], -1, 0, 33)};
  };
  cases.push_back(std::move(shared));
  return cases;
}

}  // namespace xtrain
