#include "ops/elementary/elementary.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/elementary/elementary_kernels.h"

namespace xtrain {
namespace {

class ElementaryNode final : public Node {
 public:
  ElementaryNode(const Tensor& kept, Elementary kind) : kept_(*this, kept), kind_(kind) {}
  const char* name() const override { return name_of(kind_); }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    dispatch(g.ctx(), *kept_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      elementary_backward(device, kind_, dx.numel(), kept_->data<T>(), dy.data<T>(),
                          dx.mutable_data<T>());
    });
    g.give(0, std::move(dx));
  }

 private:
  Saved kept_;
  Elementary kind_;
};

}  // namespace

const char* name_of(Elementary kind) {
  switch (kind) {
    case Elementary::exp:
      return "exp";
    case Elementary::log:
      return "log";
    case Elementary::tanh:
      return "tanh";
    case Elementary::sigmoid:
      return "sigmoid";
    case Elementary::rsqrt:
      return "rsqrt";
  }
  return "?";
}

Var elementary(const Context& ctx, const Var& x, Elementary kind) {
  check(x.defined(), name_of(kind), ": a tensor must be given; got an undefined one");
  const Tensor input = contiguous(ctx, x.value);
  Tensor y = empty_like(ctx, input);
  dispatch(ctx, input, name_of(kind), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    elementary_forward(device, kind, y.numel(), input.data<T>(), y.mutable_data<T>());
  });
  return record<ElementaryNode>({x}, y, kind == Elementary::log ? input : y, kind);
}

}  // namespace xtrain
