#include "ops/linear/linear.h"

#include "core/copy.h"
#include "core/gemm.h"
#include "ops/linear/linear_products.h"

namespace xtrain {
namespace {

void write_dx(const Context& ctx, const Tensor& dy, const Tensor& weight, Tensor dx,
              bool accumulate) {
  const Shape shape = rows_shape(dx);
  if (dx.can_reshape(shape)) {
    return gemm(ctx, dy, weight, dx.reshape(shape), 1.0, accumulate ? 1.0 : 0.0);
  }
  const Tensor fresh = empty_like(ctx, dx);
  gemm(ctx, dy, weight, fresh.reshape(shape));
  accumulate ? add_into(ctx, fresh, dx) : copy(ctx, fresh, dx);
}

class LinearNode final : public Node {
 public:
  LinearNode(const Tensor& x, const Tensor& weight) : x_(*this, x), weight_(*this, weight) {}
  const char* name() const override { return "linear"; }

  void backward(Gradients& g) override {
    const Context& ctx = g.ctx();
    const Tensor dy = as_rows(ctx, contiguous(ctx, g.take(0)));
    if (g.wanted(1)) give_weight_gradient(g, 1, dy, *x_);
    give_bias_gradient(g, 2, dy, g.take_column_sums(0));
    x_.release();  // dx, which is as large, may take its memory
    g.write(0, [&](Tensor dx, bool accumulate) { write_dx(ctx, dy, *weight_, dx, accumulate); });
  }

 private:
  Saved x_, weight_;
};

}  // namespace

Var linear(const Context& ctx, const Var& x, const Var& weight, const Var& bias) {
  Tensor y = linear_value(ctx, x.value, weight.value, bias.value);
  Var result = record<LinearNode>({x, weight, bias}, y, x.value, weight.value);
  result.biased = bias.defined();
  return result;
}

}  // namespace xtrain
