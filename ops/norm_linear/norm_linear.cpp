#include "ops/norm_linear/norm_linear.h"

#include "core/copy.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_products.h"
#include "ops/norm/norm_node.h"

namespace xtrain {
namespace {

class NormLinearBase : public NormBase {
 public:
  NormLinearBase(NormKind kind, const NormResult& r, const Tensor& weight)
      : NormBase(kind, r), bias_(*this, r.bias), weight_(*this, weight) {}
  const char* name() const override { return "norm_linear"; }

 protected:
  // As through_norm, from the gradient of y. The four parameters are inputs `first` and those after
  // it, in the order of NormLinearParameters.
  Tensor through_linear(Gradients& g, const Tensor& dy, const Tensor& dsum, bool dx_wanted,
                        int first) const {
    const Context& ctx = g.ctx();
    const Tensor rows = as_rows(ctx, contiguous(ctx, dy));
    const int weight_input = first + 2;
    give_bias_gradient(g, first + 3, rows);
    const Tensor dnormed = input_gradient(ctx, rows, *weight_, shape());
    if (!g.wanted(weight_input)) return through_norm(g, dnormed, dsum, dx_wanted, first);
    const Tensor normed = dnormed;  // from here on, in the same memory
    Tensor dx = through_norm(g, dnormed, dsum, dx_wanted, first, Rebuilt{*bias_, normed});
    give_weight_gradient(g, weight_input, rows, normed);
    return dx;
  }

 private:
  Saved bias_, weight_;
};

class NormLinearNode final : public NormLinearBase {  // x, parameters -> y
 public:
  using NormLinearBase::NormLinearBase;

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    Tensor dx = through_linear(g, dy, Tensor(), g.wanted(0), 1);
    g.give(0, std::move(dx));
  }
};

class AddNormLinearNode final : public NormLinearBase {  // x, branch, parameters -> sum, y
 public:
  using NormLinearBase::NormLinearBase;

  void backward(Gradients& g) override {
    Tensor dsum = g.take(0);
    const Tensor dy = g.take(1);
    if (dy.defined()) {
      dsum = contiguous(g.ctx(), dsum);
      dsum = through_linear(g, dy, dsum, g.wanted(0) || g.wanted(1), 2);
    }
    g.give(0, dsum);
    g.give(1, std::move(dsum));
  }
};

}  // namespace

NormLinear norm_linear(const Context& ctx, const Var& x, const Var& branch,
                       const NormLinearParameters& p, NormKind kind, double eps) {
  const NormResult r = normalize(ctx, "norm_linear", x.value, branch.value, p.norm_weight.value,
                                 p.norm_bias.value, kind, eps);
  const Tensor y = linear_value(ctx, r.y, p.weight.value, p.bias.value);
  if (!branch.defined()) {
    const Var inputs[] = {x, p.norm_weight, p.norm_bias, p.weight, p.bias};
    return {x, record_outputs<NormLinearNode>(inputs, {y}, kind, r, p.weight.value)[0]};
  }
  const Var inputs[] = {x, branch, p.norm_weight, p.norm_bias, p.weight, p.bias};
  const std::vector<Var> outputs =
      record_outputs<AddNormLinearNode>(inputs, {r.x, y}, kind, r, p.weight.value);
  return {outputs[0], outputs[1]};
}

NormLinear norm_linear_composed(const Context& ctx, const Var& x, const Var& branch,
                                const NormLinearParameters& p, NormKind kind, double eps) {
  AddNorm a{x, Var()};
  if (branch.defined()) {
    a = add_norm_composed(ctx, x, branch, p.norm_weight, p.norm_bias, kind, eps);
  } else {
    a.normed = norm(ctx, x, p.norm_weight, p.norm_bias, kind, eps);
  }
  return {a.sum, linear(ctx, a.normed, p.weight, p.bias)};
}

}  // namespace xtrain
