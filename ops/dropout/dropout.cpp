#include "ops/dropout/dropout.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/dropout/dropout_kernels.h"

namespace xtrain {
namespace {

void apply(const Context& ctx, const Dropout& dropout, const RandomKey& random, const Tensor& x,
           Tensor y) {
  if (x.numel() == 0) return;
  dispatch(ctx, x, "dropout", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    dropout_apply(device, dropout, random, x.size(0), x.numel() / x.size(0), x.data<T>(),
                  y.mutable_data<T>());
  });
}

class DropoutNode final : public Node {
 public:
  DropoutNode(const Dropout& dropout, const RandomKey& random)
      : dropout_(dropout), random_(random) {}
  const char* name() const override { return "dropout"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    const Tensor dx = reuse_or_empty(g.ctx(), dy);
    apply(g.ctx(), dropout_, random_, dy, dx);
    g.give(0, dx);
  }

 private:
  Dropout dropout_;
  RandomKey random_;
};

}  // namespace

void check_dropout(const Dropout& dropout) {
  check(dropout.p >= 0.0 && dropout.p < 1.0, "dropout: p must lie in [0, 1); got ", dropout.p);
}

Var dropout(const Context& ctx, const Var& x, const Dropout& dropout) {
  check_dropout(dropout);
  check(x.defined(), "dropout: a tensor must be given; got an undefined one");
  check(x.value.rank() >= 1, "dropout: x must be [B, ...]; got shape ", x.shape());
  if (!dropout.acts(ctx)) return x;
  const Tensor input = contiguous(ctx, x.value), y = empty_like(ctx, input);
  apply(ctx, dropout, ctx.random, input, y);
  return record<DropoutNode>({x}, y, dropout, ctx.random);
}

}  // namespace xtrain
