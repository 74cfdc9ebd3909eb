#include "ops/softmax/softmax.h"

#include <algorithm>

#include "core/copy.h"
#include "ops/softmax/softmax_kernels.h"

namespace xtrain {
namespace {

const char* name_of(bool log) {
  return log ? "log_softmax" : "softmax";
}

int64_t row_count(const Tensor& x) {
  return x.numel() / std::max<int64_t>(x.size(-1), 1);
}

class SoftmaxNode final : public Node {
 public:
  SoftmaxNode(const Tensor& y, bool log) : y_(*this, y), log_(log) {}
  const char* name() const override { return name_of(log_); }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    dispatch(g.ctx(), *y_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      const auto backward = log_ ? log_softmax_backward<T> : softmax_backward<T>;
      backward(device, row_count(dy), dy.size(-1), y_->data<T>(), dy.data<T>(),
               dx.mutable_data<T>());
    });
    g.give(0, std::move(dx));
  }

 private:
  Saved y_;
  bool log_;
};

Var any_softmax(const Context& ctx, const Var& x, bool log) {
  check(x.defined() && x.value.rank() >= 1, name_of(log), ": x must have a last dimension; got ",
        "shape ", x.shape());
  const Tensor input = contiguous(ctx, x.value);
  Tensor y = empty_like(ctx, input);
  dispatch(ctx, input, name_of(log), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    const auto forward = log ? log_softmax_forward<T> : softmax_forward<T>;
    forward(device, row_count(input), input.size(-1), input.data<T>(), y.mutable_data<T>());
  });
  return record<SoftmaxNode>({x}, y, y, log);
}

}  // namespace

Var softmax(const Context& ctx, const Var& x) {
  return any_softmax(ctx, x, false);
}

Var log_softmax(const Context& ctx, const Var& x) {
  return any_softmax(ctx, x, true);
}

}  // namespace xtrain
