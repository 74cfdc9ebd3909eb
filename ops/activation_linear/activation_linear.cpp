#include "ops/activation_linear/activation_linear.h"

#include <type_traits>

#include "core/copy.h"
#include "core/error.h"
#include "ops/activation/activation_kernels.h"
#include "ops/activation_linear/activation_linear_kernels.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_products.h"
#include "ops/optional_data.h"
#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_kernels.h"

namespace xtrain {
namespace {

// The kinds of f: the value of a contiguous x, and dx with, where y is defined, that value again.
// backward gives the column sums of dx (Gradients::give) where they are wanted and cost no walk of
// their own.
struct PlainActivation {
  Activation kind;

  const char* name() const { return "activation_linear"; }
  Tensor value(const Context& ctx, const Tensor& x) const { return activation(ctx, x, kind).value; }
  Tensor backward(const Context& ctx, const Tensor& x, const Tensor& dy, Tensor dx, Tensor y,
                  bool sums_wanted) const {
    Tensor sums;
    dispatch(ctx, x, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      using A = Accumulator<T>;
      if (!sums_wanted || !y.defined()) {
        return activation_backward(device, kind, x.numel(), x.data<T>(), dy.data<T>(),
                                   dx.mutable_data<T>(), mutable_data_or_null<T>(y));
      }
      const Shape shape = rows_shape(x);
      sums = empty(ctx, {activation_row_blocks(device, shape[0]), shape[1]}, dtype_of<A>);
      activation_backward_and_sums(
          device, kind,
          ActivationRows<T>{shape[0], shape[1], x.data<T>(), dy.data<T>(), dx.mutable_data<T>(),
                            y.mutable_data<T>(), sums.mutable_data<A>()});
    });
    return sums;
  }
};

struct Swiglu {
  const char* name() const { return "swiglu_linear"; }
  Tensor value(const Context& ctx, const Tensor& x) const { return swiglu(ctx, x).value; }
  Tensor backward(const Context& ctx, const Tensor& x, const Tensor& dy, Tensor dx, Tensor y,
                  bool) const {
    const Shape rows = rows_shape(dy);
    dispatch(ctx, x, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      swiglu_backward(device, rows[0], rows[1], x.data<T>(), dy.data<T>(), dx.mutable_data<T>(),
                      mutable_data_or_null<T>(y));
    });
    return Tensor();
  }
};

template <class F>
class ActivationLinearNode final : public Node {  // x, weight, bias -> y
 public:
  ActivationLinearNode(const F& f, const Tensor& x, bool biased_x, const Shape& hidden,
                       const Tensor& weight)
      : f_(f), x_(*this, x), biased_x_(biased_x), hidden_(hidden), weight_(*this, weight) {}
  const char* name() const override { return f_.name(); }

  void backward(Gradients& g) override {
    const Context& ctx = g.ctx();
    const Tensor dy = as_rows(ctx, contiguous(ctx, g.take(0)));
    give_bias_gradient(g, 2, dy, g.take_column_sums(0));
    const Tensor x = x_.release();
    if (!g.wanted(0)) {
      if (g.wanted(1)) give_weight_gradient(g, 1, dy, f_.value(ctx, x));
      return;
    }
    const Tensor dhidden = input_gradient(ctx, dy, *weight_, hidden_);
    const Tensor hidden = g.wanted(1) ? dhidden : Tensor();  // from here on, in the same memory
    Tensor dx = reuse_or_empty(ctx, x);
    Tensor sums = f_.backward(ctx, x, dhidden, dx, hidden, biased_x_);
    g.give(0, std::move(dx), std::move(sums));
    if (g.wanted(1)) give_weight_gradient(g, 1, dy, hidden);
  }

 private:
  F f_;
  Saved x_;
  bool biased_x_;  // Var::biased
  Shape hidden_;   // of f(x)
  Saved weight_;
};

template <class F>
Var record_activation_linear(const Context& ctx, const F& f, const Var& x, const Var& weight,
                             const Var& bias, const Tensor& activated) {
  const Tensor input = contiguous(ctx, x.value);
  const Tensor hidden = activated.defined() ? activated : f.value(ctx, input);
  const Tensor y = linear_value(ctx, hidden, weight.value, bias.value);
  Var result = record<ActivationLinearNode<F>>({x, weight, bias}, y, f, input, x.biased,
                                               hidden.shape(), weight.value);
  result.biased = bias.defined();
  return result;
}

// Whether swiglu_linear is one kernel.
bool is_one_kernel(const Context& ctx, const Tensor& gate_up, const Tensor& weight,
                   const Tensor& bias) {
  if (!gate_up.defined() || gate_up.rank() == 0 || !weight.defined() || weight.rank() != 2 ||
      gate_up.size(-1) != 2 * weight.size(1) || gate_up.dtype() != weight.dtype()) {
    return false;
  }
  Shape hidden = gate_up.shape();
  hidden[hidden.rank() - 1] = weight.size(1);
  return has_few_rows_kernel(ctx, hidden, weight, bias) && is_packed(gate_up);
}

Tensor few_rows_value(const Context& ctx, const Tensor& gate_up, const Tensor& weight,
                      const Tensor& bias) {
  Tensor y = empty(ctx, linear_shape(gate_up.shape(), weight), gate_up.dtype());
  dispatch(ctx, gate_up, "swiglu_linear", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    if constexpr (std::is_same_v<decltype(device), Cuda>) {
      swiglu_linear_few_rows(device, few_rows_of<T>(weight, bias, y), gate_up.data<T>());
    }
  });
  return y;
}

}  // namespace

Var activation_linear(const Context& ctx, const Var& x, Activation kind, const Var& weight,
                      const Var& bias) {
  return record_activation_linear(ctx, PlainActivation{kind}, x, weight, bias, Tensor());
}

Var activated_linear(const Context& ctx, const Var& x, const Tensor& activated, Activation kind,
                     const Var& weight, const Var& bias) {
  check(activated.shape() == x.shape() && activated.is_contiguous(),
        "activation_linear: f(x) must be contiguous and have the shape of x, ", x.shape(),
        "; got shape ", activated.shape());
  return record_activation_linear(ctx, PlainActivation{kind}, x, weight, bias, activated);
}

Var swiglu_linear(const Context& ctx, const Var& gate_up, const Var& weight, const Var& bias) {
  const Var all[] = {gate_up, weight, bias};
  if (!common_tape(all) && is_one_kernel(ctx, gate_up.value, weight.value, bias.value)) {
    return few_rows_value(ctx, gate_up.value, weight.value, bias.value);
  }
  return record_activation_linear(ctx, Swiglu{}, gate_up, weight, bias, Tensor());
}

Var activation_linear_composed(const Context& ctx, const Var& x, Activation kind, const Var& weight,
                               const Var& bias) {
  return linear(ctx, activation(ctx, x, kind), weight, bias);
}

Var swiglu_linear_composed(const Context& ctx, const Var& gate_up, const Var& weight,
                           const Var& bias) {
  return linear(ctx, swiglu_composed(ctx, gate_up), weight, bias);
}

}  // namespace xtrain
