#include "ops/linear/linear_products.h"

#include <type_traits>

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"
#include "ops/linear/linear_kernels.h"

namespace xtrain {
namespace {

// `rows` add up to dbias: those of dy, or their sums in part.
void write_dbias(const Context& ctx, const Tensor& rows, Tensor dbias, bool accumulate) {
  Tensor sums = contiguous(ctx, dbias);
  dispatch(ctx, rows, "linear", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    column_sums(device, rows.size(0), rows.size(1), rows.data<T>(), accumulate,
                sums.mutable_data<Accumulator<T>>());
  });
  if (!sums.shares_storage(dbias)) copy(ctx, sums, dbias);
}

void multiply_few_rows(const Context& ctx, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, Tensor y) {
  dispatch(ctx, x, "linear", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    if constexpr (std::is_same_v<decltype(device), Cuda>) {
      few_rows_linear(device, few_rows_of<T>(weight, bias, y), x.data<T>());
    }
  });
}

}  // namespace

Shape rows_shape(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.size(i);
  return {rows, x.size(-1)};
}

Tensor as_rows(const Context& ctx, const Tensor& x) {
  const Shape shape = rows_shape(x);
  return (x.can_reshape(shape) ? x : contiguous(ctx, x)).reshape(shape);
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.rank() >= 1 && weight.rank() == 2,
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

Shape linear_shape(const Shape& x, const Tensor& weight) {
  Shape y = x;
  y[y.rank() - 1] = weight.size(0);
  return y;
}

bool has_few_rows_kernel(const Context& ctx, const Shape& x, const Tensor& weight,
                         const Tensor& bias) {
  constexpr int64_t kVectors = 2;           // that the kernel may keep beside the rows
  constexpr int64_t kMostBytes = 96 << 10;  // of the shared memory of a block, on any GPU
  const bool library = ctx.gemm == GemmBackend::library || ctx.gemm == GemmBackend::library_tf32;
  if (!ctx.device.is_cuda() || !library || !weight.defined() || weight.rank() != 2) return false;
  const int64_t in = weight.size(1), bytes = size_of(weight.dtype());
  const int64_t rows = in > 0 ? numel_of(x) / in : 0;
  const bool packs = weight.stride(1) == 1 && weight.is_aligned(16) &&
                     weight.stride(0) * bytes % 16 == 0 && in * bytes % 16 == 0;
  return packs && rows >= 1 && rows <= kMostLinearRows &&
         (rows + kVectors) * in * bytes <= kMostBytes && weight.size(0) > 0 &&
         (!bias.defined() || (bias.is_contiguous() && bias.shape() == Shape{weight.size(0)} &&
                              bias.dtype() == weight.dtype()));
}

bool is_packed(const Tensor& x) {
  return !x.defined() || (x.is_contiguous() && x.is_aligned(16));
}

Tensor linear_value(const Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(x, weight, bias);
  Tensor y = empty(ctx, linear_shape(x.shape(), weight), x.dtype());
  if (has_few_rows_kernel(ctx, x.shape(), weight, bias) && is_packed(x)) {
    multiply_few_rows(ctx, x, weight, bias, y);
    return y;
  }
  const Tensor x_rows = as_rows(ctx, x), y_rows = y.reshape(rows_shape(y));
  if (bias.defined()) {
    gemm_bias(ctx, x_rows, weight.transpose(0, 1), bias, y_rows);
  } else {
    gemm(ctx, x_rows, weight.transpose(0, 1), y_rows);
  }
  return y;
}

LinearGelu linear_gelu_value(const Context& ctx, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) {
  if (bias.defined() && x.dtype() == Dtype::bf16) {
    check_linear(x, weight, bias);
    const Shape shape = linear_shape(x.shape(), weight);
    const LinearGelu r{empty(ctx, shape, x.dtype()), empty(ctx, shape, x.dtype())};
    const Shape rows = rows_shape(r.y);
    if (gemm_bias_gelu(ctx, as_rows(ctx, x), weight.transpose(0, 1), bias, r.y.reshape(rows),
                       r.gelu.reshape(rows))) {
      return r;
    }
  }  // their memory is free again
  return {linear_value(ctx, x, weight, bias), {}};
}

Tensor input_gradient(const Context& ctx, const Tensor& dy, const Tensor& weight, const Shape& x) {
  const Tensor dx = empty(ctx, x, dy.dtype());
  gemm(ctx, dy, weight, dx.reshape(rows_shape(dx)));
  return dx;
}

void give_weight_gradient(Gradients& g, int input, const Tensor& dy, const Tensor& x) {
  const Context& ctx = g.ctx();
  g.write_as(input, accumulator_dtype(dy.dtype()), [&](Tensor dweight, bool accumulate) {
    gemm(ctx, dy.transpose(0, 1), as_rows(ctx, x), dweight, 1.0, accumulate ? 1.0 : 0.0);
  });
}

void give_bias_gradient(Gradients& g, int input, const Tensor& dy, const Tensor& column_sums) {
  const Tensor& rows = column_sums.defined() ? column_sums : dy;
  g.write_as(input, accumulator_dtype(dy.dtype()),
             [&](Tensor dbias, bool accumulate) { write_dbias(g.ctx(), rows, dbias, accumulate); });
}

}  // namespace xtrain
