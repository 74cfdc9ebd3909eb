#include "ops/norm/norm.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/norm/norm_node.h"

namespace xtrain {
namespace {

class NormNode final : public NormBase {  // x, weight, bias -> y
 public:
  NormNode(NormKind kind, const NormResult& r) : NormBase(kind, r, false) {}
  const char* name() const override { return name_of(kind()); }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    SumGradient d = through_norm(g, dy, Tensor(), g.wanted(0), 1);
    g.give(0, std::move(d.dx));
  }
};

class AddNormNode final : public NormBase {  // x, branch, weight, bias -> sum, normed
 public:
  using NormBase::NormBase;
  const char* name() const override { return "add_norm"; }

  void backward(Gradients& g) override {
    SumGradient d{g.take(0), Tensor()};
    const Tensor dnormed = contiguous(g.ctx(), g.take(1));
    if (dnormed.defined()) {
      d.dx = contiguous(g.ctx(), d.dx);
      d = through_norm(g, dnormed, d.dx, g.wanted(0) || g.wanted(1), 2);
    }
    give_to_both(g, std::move(d));
  }
};

}  // namespace

const char* name_of(NormKind kind) {
  return kind == NormKind::layer ? "layer_norm" : "rms_norm";
}

Var norm(const Context& ctx, const Var& x, const Var& weight, const Var& bias, NormKind kind,
         double eps) {
  const NormResult r =
      normalize(ctx, name_of(kind), x.value, Tensor(), weight.value, bias.value, kind, eps);
  return record<NormNode>({x, weight, bias}, r.y, kind, r);
}

AddNorm add_norm(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                 const Var& bias, NormKind kind, double eps) {
  check(branch.defined(), "add_norm: a branch must be given; got an undefined one");
  const NormResult r =
      normalize(ctx, "add_norm", x.value, branch.value, weight.value, bias.value, kind, eps);
  const Var inputs[] = {x, branch, weight, bias};
  const std::vector<Var> outputs =
      record_outputs<AddNormNode>(inputs, {r.x, r.y}, kind, r, branch.biased);
  return {outputs[0], outputs[1]};
}

AddNorm add_norm_composed(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                          const Var& bias, NormKind kind, double eps) {
  const Var sum = add(ctx, x, branch);
  return {sum, norm(ctx, sum, weight, bias, kind, eps)};
}

}  // namespace xtrain
