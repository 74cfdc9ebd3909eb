#pragma once
// The products of linear.h, for its node and for nodes that end in a linear.

#include "autodiff/tape.h"
#include "ops/linear/linear_kernels.h"
#include "ops/optional_data.h"

namespace xtrain {

// The shape of x as a matrix of rows of its last dimension, and x as that matrix: a copy only when
// its rows do not lie evenly apart.
Shape rows_shape(const Tensor& x);
Tensor as_rows(const Context& ctx, const Tensor& x);

// Error unless they fit each other; bias may be undefined.
void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

// That of x weight^T, [..., out], where x has shape [..., in].
Shape linear_shape(const Shape& x, const Tensor& weight);

// x weight^T + bias, checked.
Tensor linear_value(const Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias);

// The same for what gelu_tanh follows, with that where the product gives it in passing (of the sums
// before they are rounded), else undefined.
struct LinearGelu {
  Tensor y, gelu;
};
LinearGelu linear_gelu_value(const Context& ctx, const Tensor& x, const Tensor& weight,
                             const Tensor& bias);

// Whether y = f(x) weight^T + bias, f(x) of shape `x`, has a kernel that computes f(x) itself and
// reads the weight once: for 1 to 8 rows of whole packs, on a GPU. It keeps nothing for backward.
// x and what else goes into it must be packed (is_packed).
bool has_few_rows_kernel(const Context& ctx, const Shape& x, const Tensor& weight,
                         const Tensor& bias);
// Whether x is contiguous and begins at a multiple of 16 bytes, or is undefined.
bool is_packed(const Tensor& x);
// As that kernel takes it; y is contiguous.
template <class T>
FewRowsLinear<T> few_rows_of(const Tensor& weight, const Tensor& bias, Tensor& y) {
  const int64_t out = weight.size(0);
  return {y.numel() / out,       weight.size(1),     out, weight.data<T>(), weight.stride(0),
          data_or_null<T>(bias), y.mutable_data<T>()};
}

// Below, dy are rows, and a weight's or bias's gradient is given to the node's input of that
// number.
//
// dy weight, in the shape of x and memory of its own.
Tensor input_gradient(const Context& ctx, const Tensor& dy, const Tensor& weight, const Shape& x);
void give_weight_gradient(Gradients& g, int input, const Tensor& dy, const Tensor& x);
// column_sums are those of dy as Gradients::take_column_sums has them, or undefined.
void give_bias_gradient(Gradients& g, int input, const Tensor& dy, const Tensor& column_sums);

}  // namespace xtrain
