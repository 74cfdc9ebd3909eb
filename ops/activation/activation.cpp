#include "ops/activation/activation.h"

#include "core/copy.h"
#include "ops/activation/activation_kernels.h"

namespace xtrain {
namespace {

class ActivationNode final : public Node {
 public:
  ActivationNode(const Tensor& x, Activation kind) : x_(*this, x), kind_(kind) {}
  const char* name() const override { return name_of(kind_); }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    dispatch(g.ctx(), *x_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      activation_backward(device, kind_, dx.numel(), x_->data<T>(), dy.data<T>(),
                          dx.mutable_data<T>(), static_cast<T*>(nullptr));
    });
    g.give(0, std::move(dx));
  }

 private:
  Saved x_;
  Activation kind_;
};

}  // namespace

const char* name_of(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return "relu";
    case Activation::silu:
      return "silu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
  }
  return "?";
}

Var activation(const Context& ctx, const Var& x, Activation kind) {
  const Tensor input = contiguous(ctx, x.value);
  Tensor y = empty_like(ctx, input);
  dispatch(ctx, input, name_of(kind), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    activation_forward(device, kind, y.numel(), input.data<T>(), y.mutable_data<T>());
  });
  return record<ActivationNode>({x}, y, input, kind);
}

}  // namespace xtrain
