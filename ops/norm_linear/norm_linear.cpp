#include "ops/norm_linear/norm_linear.h"

#include <type_traits>

#include "core/copy.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_products.h"
#include "ops/norm/norm_node.h"
#include "ops/norm_linear/norm_linear_kernels.h"
#include "ops/optional_data.h"

namespace xtrain {
namespace {

class NormLinearBase : public NormBase {
 public:
  NormLinearBase(NormKind kind, const NormResult& r, const Tensor& weight, bool biased_branch)
      : NormBase(kind, r, biased_branch), bias_(*this, r.bias), weight_(*this, weight) {}
  const char* name() const override { return "norm_linear"; }

 protected:
  // As through_norm, from the gradient of y, output number `output`. The four parameters are inputs
  // `first` and those after it, in the order of NormLinearParameters.
  SumGradient through_linear(Gradients& g, int output, const Tensor& dy, const Tensor& dsum,
                             bool dx_wanted, int first) const {
    const Context& ctx = g.ctx();
    const Tensor rows = as_rows(ctx, contiguous(ctx, dy));
    const int weight_input = first + 2;
    give_bias_gradient(g, first + 3, rows, g.take_column_sums(output));
    const Tensor dnormed = input_gradient(ctx, rows, *weight_, shape());
    if (!g.wanted(weight_input)) return through_norm(g, dnormed, dsum, dx_wanted, first);
    const Tensor normed = dnormed;  // from here on, in the same memory
    SumGradient d = through_norm(g, dnormed, dsum, dx_wanted, first, Rebuilt{*bias_, normed});
    give_weight_gradient(g, weight_input, rows, normed);
    return d;
  }

 private:
  Saved bias_, weight_;
};

class NormLinearNode final : public NormLinearBase {  // x, parameters -> y
 public:
  using NormLinearBase::NormLinearBase;

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    SumGradient d = through_linear(g, 0, dy, Tensor(), g.wanted(0), 1);
    g.give(0, std::move(d.dx));
  }
};

class AddNormLinearNode final : public NormLinearBase {  // x, branch, parameters -> sum, y
 public:
  using NormLinearBase::NormLinearBase;

  void backward(Gradients& g) override {
    SumGradient d{g.take(0), Tensor()};
    const Tensor dy = g.take(1);
    if (dy.defined()) {
      d.dx = contiguous(g.ctx(), d.dx);
      d = through_linear(g, 1, dy, d.dx, g.wanted(0) || g.wanted(1), 2);
    }
    give_to_both(g, std::move(d));
  }
};

// Whether one kernel does all of it.
bool is_one_kernel(const Context& ctx, const Tensor& x, const Tensor& branch,
                   const NormLinearParameters& p) {
  const Tensor &weight = p.weight.value, &bias = p.bias.value;
  return x.defined() && has_few_rows_kernel(ctx, x.shape(), weight, bias) && is_packed(x) &&
         is_packed(branch) && is_packed(p.norm_weight.value) && is_packed(p.norm_bias.value);
}

NormLinear few_rows_value(const Context& ctx, const Tensor& x, const Tensor& branch,
                          const NormLinearParameters& p, NormKind kind, double eps) {
  const Tensor &scale = p.norm_weight.value, &shift = p.norm_bias.value;
  check_norm("norm_linear", x, branch, scale, shift, kind, eps);
  check_linear(x, p.weight.value, p.bias.value);
  Tensor y = empty(ctx, linear_shape(x.shape(), p.weight.value), x.dtype());
  Tensor sum = branch.defined() ? empty_like(ctx, x) : x;
  dispatch(ctx, x, "norm_linear", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    if constexpr (std::is_same_v<decltype(device), Cuda>) {
      const FewRowsLinear<T> product = few_rows_of<T>(p.weight.value, p.bias.value, y);
      T* const sums = branch.defined() ? sum.mutable_data<T>() : nullptr;
      const NormForward<T> norm{kind,
                                product.rows,
                                product.in,
                                eps,
                                x.data<T>(),
                                data_or_null<T>(branch),
                                sums,
                                data_or_null<T>(scale),
                                data_or_null<T>(shift),
                                nullptr,
                                nullptr,
                                nullptr};
      norm_linear_few_rows(device, product, norm);
    }
  });
  return {sum, y, Tensor()};
}

}  // namespace

NormLinear norm_linear(const Context& ctx, const Var& x, const Var& branch,
                       const NormLinearParameters& p, NormKind kind, double eps) {
  const Var all[] = {x, branch, p.norm_weight, p.norm_bias, p.weight, p.bias};
  if (!common_tape(all) && is_one_kernel(ctx, x.value, branch.value, p)) {
    return few_rows_value(ctx, x.value, branch.value, p, kind, eps);
  }
  const NormResult r = normalize(ctx, "norm_linear", x.value, branch.value, p.norm_weight.value,
                                 p.norm_bias.value, kind, eps);
  const LinearGelu projected =
      p.gelu_follows ? linear_gelu_value(ctx, r.y, p.weight.value, p.bias.value)
                     : LinearGelu{linear_value(ctx, r.y, p.weight.value, p.bias.value), {}};
  const Tensor y = projected.y;
  if (!branch.defined()) {
    const Var inputs[] = {x, p.norm_weight, p.norm_bias, p.weight, p.bias};
    NormLinear result{
        x, record_outputs<NormLinearNode>(inputs, {y}, kind, r, p.weight.value, false)[0],
        projected.gelu};
    result.y.biased = p.bias.defined();
    return result;
  }
  const std::vector<Var> outputs =
      record_outputs<AddNormLinearNode>(all, {r.x, y}, kind, r, p.weight.value, branch.biased);
  NormLinear result{outputs[0], outputs[1], projected.gelu};
  result.y.biased = p.bias.defined();
  return result;
}

NormLinear norm_linear_composed(const Context& ctx, const Var& x, const Var& branch,
                                const NormLinearParameters& p, NormKind kind, double eps) {
  AddNorm a{x, Var()};
  if (branch.defined()) {
    a = add_norm_composed(ctx, x, branch, p.norm_weight, p.norm_bias, kind, eps);
  } else {
    a.normed = norm(ctx, x, p.norm_weight, p.norm_bias, kind, eps);
  }
  return {a.sum, linear(ctx, a.normed, p.weight, p.bias), Tensor()};
}

}  // namespace xtrain
