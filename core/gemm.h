#pragma once
// Matrix product, without gradients: c = alpha * a b + beta * c.
//
// a [..., M, K], b [..., K, N], c [..., M, N]; leading dimensions equal (use expand to repeat a
// batch). Transposes are said by strides: pass x.transpose(-1, -2). In each matrix one of the two
// dimensions must have stride 1 (or size 1); an operand that has neither is copied.
// dtypes: a and b equal; c the same, or f32 where they are bf16. Sums are kept in f64 for f64, else
// in f32, and round once. beta 0 overwrites c, whatever it held (NaN included); K 0 gives beta * c.
// The result has the same bits for any number of threads. Backends differ in rounding only.

#include "core/tensor.h"

namespace xtrain {

void gemm(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c, double alpha = 1.0,
          double beta = 0.0);

// c = a b + bias for matrices, bias [N] of c's dtype added to every row. The sum rounds once.
void gemm_bias(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor c);

// The same, and gelu of c's shape and dtype becomes gelu_tanh (activation.h) of the sum before it
// rounds. False, and nothing is done, where the backend has no such product: cuBLASLt has one in
// bf16.
bool gemm_bias_gelu(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& bias,
                    Tensor c, Tensor gelu);

}  // namespace xtrain
