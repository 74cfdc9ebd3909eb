#include "ops/add_relu/add_relu.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/activation/activation.h"
#include "ops/add_relu/add_relu_kernels.h"
#include "ops/arithmetic/arithmetic.h"

namespace xtrain {
namespace {

class AddReluNode final : public Node {
 public:
  explicit AddReluNode(const Tensor& y) : y_(*this, y) {}
  const char* name() const override { return "add_relu"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    dispatch(g.ctx(), dy, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      add_relu_backward(device, dx.numel(), y_->data<T>(), dy.data<T>(), dx.mutable_data<T>());
    });
    if (g.wanted(0)) g.give(0, dx);
    if (g.wanted(1)) g.give(1, dx);
  }

 private:
  Saved y_;
};

void check_operands(const Tensor& a, const Tensor& b) {
  check(a.defined() && b.defined(), "add_relu: both operands must be given; got an undefined one");
  check(a.device() == b.device(), "add_relu: operands must lie on one device; got ", a.device(),
        " and ", b.device());
  check(a.shape() == b.shape() && a.dtype() == b.dtype(),
        "add_relu: operands must agree in shape and dtype; got ", a.dtype(), " ", a.shape(),
        " and ", b.dtype(), " ", b.shape());
}

}  // namespace

Var add_relu(const Context& ctx, const Var& a, const Var& b) {
  check_operands(a.value, b.value);
  const Tensor left = contiguous(ctx, a.value), right = contiguous(ctx, b.value);
  Tensor y = empty_like(ctx, left);
  dispatch(ctx, left, "add_relu", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    add_relu_forward(device, y.numel(), left.data<T>(), right.data<T>(), y.mutable_data<T>());
  });
  return record<AddReluNode>({a, b}, y, y);
}

Var add_relu_composed(const Context& ctx, const Var& a, const Var& b) {
  check_operands(a.value, b.value);
  return relu(ctx, add(ctx, a, b));
}

}  // namespace xtrain
