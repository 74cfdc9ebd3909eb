#include "ops/linear/linear.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"
#include "ops/linear/linear_kernels.h"

namespace xtrain {
namespace {

// The shape of x as a matrix of rows of its last dimension.
Shape rows_shape(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.size(i);
  return {rows, x.size(-1)};
}

// x as that matrix; a copy only when its rows do not lie evenly apart.
Tensor as_rows(const Context& ctx, const Tensor& x) {
  const Shape shape = rows_shape(x);
  return (x.can_reshape(shape) ? x : contiguous(ctx, x)).reshape(shape);
}

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

void write_dbias(const Context& ctx, const Tensor& dy, Tensor dbias, bool accumulate) {
  Tensor sums = contiguous(ctx, dbias);
  dispatch(ctx, dy, "linear", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    column_sums(device, dy.size(0), dy.size(1), dy.data<T>(), accumulate,
                sums.mutable_data<Accumulator<T>>());
  });
  if (!sums.shares_storage(dbias)) copy(ctx, sums, dbias);
}

class LinearNode final : public Node {
 public:
  LinearNode(const Tensor& x, const Tensor& weight) : x_(*this, x), weight_(*this, weight) {}
  const char* name() const override { return "linear"; }

  void backward(Gradients& g) override {
    const Context& ctx = g.ctx();
    const Tensor dy = as_rows(ctx, contiguous(ctx, g.take(0)));
    const Dtype sum_dtype = accumulator_dtype(dy.dtype());
    g.write_as(1, sum_dtype, [&](Tensor dweight, bool accumulate) {
      gemm(ctx, dy.transpose(0, 1), as_rows(ctx, *x_), dweight, 1.0, accumulate ? 1.0 : 0.0);
    });
    g.write_as(2, sum_dtype,
               [&](Tensor dbias, bool accumulate) { write_dbias(ctx, dy, dbias, accumulate); });
    x_.release();  // dx, which is as large, may take its memory
    g.write(0, [&](Tensor dx, bool accumulate) { write_dx(ctx, dy, *weight_, dx, accumulate); });
  }

 private:
  Saved x_, weight_;
};

void check_arguments(const Var& x, const Var& weight, const Var& bias) {
  check(x.value.rank() >= 1 && weight.value.rank() == 2,
        "linear: x must be [..., in] and weight [out, in]; got ", x.shape(), " and ",
        weight.shape());
  check(x.size(-1) == weight.size(1), "linear: inner sizes must agree; got x ", x.shape(),
        " and weight ", weight.shape());
  check(x.dtype() == weight.dtype(), "linear: dtypes must be equal; got x ", x.dtype(),
        " and weight ", weight.dtype());
  if (!bias.defined()) return;
  check(bias.shape() == Shape{weight.size(0)}, "linear: bias must have shape (", weight.size(0),
        ") beside weight ", weight.shape(), "; got ", bias.shape());
  check(bias.dtype() == x.dtype(), "linear: dtypes must be equal; got x ", x.dtype(), " and bias ",
        bias.dtype());
}

}  // namespace

Var linear(const Context& ctx, const Var& x, const Var& weight, const Var& bias) {
  check_arguments(x, weight, bias);
  Shape shape = x.shape();
  shape[shape.rank() - 1] = weight.size(0);
  Tensor y = empty(ctx, shape, x.dtype());
  if (bias.defined()) copy(ctx, bias.value.expand(shape), y);
  gemm(ctx, as_rows(ctx, x.value), weight.value.transpose(0, 1), y.reshape(rows_shape(y)), 1.0,
       bias.defined() ? 1.0 : 0.0);
  return record<LinearNode>({x, weight, bias}, y, x.value, weight.value);
}

}  // namespace xtrain
