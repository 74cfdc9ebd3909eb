#include "train/clip.h"

#include "core/error.h"
#include "train/clip_kernels.h"

namespace xtrain {

Tensor sum_of_squares(const Context& ctx, const Tensor& x) {
  check(x.is_contiguous(), "sum_of_squares: the tensor must be contiguous; got strides ",
        x.strides());
  check(x.dtype() == Dtype::f32 || x.dtype() == Dtype::f64,
        "sum_of_squares: gradients must be f32 or f64; got ", x.dtype());
  Tensor sum = empty(ctx, {1}, Dtype::f64);
  dispatch(ctx, x, "sum_of_squares", [&](auto device, auto scalar) {
    using A = Accumulator<decltype(scalar)>;
    sum_squares(device, x.numel(), x.data<A>(), sum.mutable_data<double>());
  });
  return sum;
}

Tensor grad_scale(const Context& ctx, const Tensor& squares, const Tensor& count, double max_norm) {
  check(squares.shape() == Shape{1} && count.shape() == Shape{1},
        "grad_scale: squares and count must be [1]; got ", squares.shape(), " and ", count.shape());
  check(count.device() == ctx.device, "grad_scale: count must lie on the context's device ",
        ctx.device, "; got ", count.device());
  Tensor scale = empty(ctx, {kGradScaleFields}, Dtype::f64);
  dispatch_device(ctx, squares, "grad_scale", [&](auto device) {
    const double* sum = squares.data<double>();
    double* out = scale.mutable_data<double>();
    if (count.dtype() == Dtype::i64) {
      compute_grad_scale(device, sum, count.data<int64_t>(), max_norm, out);
    } else {
      compute_grad_scale(device, sum, count.data<double>(), max_norm, out);
    }
  });
  return scale;
}

GradScale read_grad_scale(const Tensor& host) {
  check(!host.device().is_cuda(), "read_grad_scale: the tensor must lie in host memory; got ",
        host.device());
  check(host.shape() == Shape{kGradScaleFields} && host.is_contiguous(),
        "read_grad_scale: the tensor must be contiguous with shape (4); got ", host.shape());
  return load_grad_scale(host.data<double>());
}

}  // namespace xtrain
