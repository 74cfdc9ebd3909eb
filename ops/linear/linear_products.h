#pragma once
// The products of linear.h, for its node and for nodes that end in a linear.

#include "autodiff/tape.h"

namespace xtrain {

// The shape of x as a matrix of rows of its last dimension, and x as that matrix: a copy only when
// its rows do not lie evenly apart.
Shape rows_shape(const Tensor& x);
Tensor as_rows(const Context& ctx, const Tensor& x);

// x weight^T + bias, checked; bias may be undefined.
Tensor linear_value(const Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias);

// Below, dy are rows, and a weight's or bias's gradient is given to the node's input of that
// number.
//
// dy weight, in the shape of x and memory of its own.
Tensor input_gradient(const Context& ctx, const Tensor& dy, const Tensor& weight, const Shape& x);
void give_weight_gradient(Gradients& g, int input, const Tensor& dy, const Tensor& x);
void give_bias_gradient(Gradients& g, int input, const Tensor& dy);

}  // namespace xtrain
