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
      const int64_t rows = row_count(dy), width = dy.size(-1);
      const T *y = y_->data<T>(), *upstream = dy.data<T>();
      T* target = dx.mutable_data<T>();
      log_ ? log_softmax_backward(device, rows, width, y, upstream, target)
           : softmax_backward(device, rows, width, y, upstream, target);
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
    const int64_t rows = row_count(input), width = input.size(-1);
    const T* from = input.data<T>();
    T* to = y.mutable_data<T>();
    log ? log_softmax_forward(device, rows, width, from, to)
        : softmax_forward(device, rows, width, from, to);
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
