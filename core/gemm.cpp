#include "core/gemm.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm_kernels.h"

namespace xtrain {
namespace {

// The last two dimensions as a matrix stored by rows (or by columns: transposed).
GemmOperand operand(const Tensor& x) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  if (x.stride(-1) == 1 || columns == 1) {
    // The stride of a single row means nothing and may be anything.
    return GemmOperand{rows == 1 ? columns : x.stride(-2), false};
  }
  return GemmOperand{x.stride(-1), true};
}

// Whether one dimension is contiguous and lines of it do not overlap.
bool is_blas_matrix(const Tensor& x) {
  const GemmOperand op = operand(x);
  const bool line_contiguous = !op.transposed || x.stride(-2) == 1 || x.size(-2) == 1;
  return line_contiguous && op.ld >= x.size(op.transposed ? -2 : -1);
}

void check_shapes(const Tensor& a, const Tensor& b, const Tensor& c) {
  check(a.rank() >= 2 && b.rank() == a.rank() && c.rank() == a.rank(),
        "matmul: ranks must be equal and at least 2; got ", a.shape(), " x ", b.shape(), " -> ",
        c.shape());
  check(a.size(-1) == b.size(-2), "matmul: inner sizes must agree; got ", a.shape(), " x ",
        b.shape());
  bool outer = c.size(-2) == a.size(-2) && c.size(-1) == b.size(-1);
  for (int i = 0; i + 2 < a.rank(); ++i) {
    outer = outer && a.size(i) == b.size(i) && a.size(i) == c.size(i);
  }
  check(outer, "matmul: batch and outer sizes must agree; got ", a.shape(), " x ", b.shape(),
        " -> ", c.shape());
  const bool widened = a.dtype() == Dtype::bf16 && c.dtype() == Dtype::f32;
  check(a.dtype() == b.dtype() && (a.dtype() == c.dtype() || widened),
        "matmul: dtypes must be equal, or bf16 x bf16 -> f32; got ", a.dtype(), " x ", b.dtype(),
        " -> ", c.dtype());
}

struct Product {
  Tensor left, right;  // matrices as backends take them
  GemmProblem problem;
};

// Of a result that lies by rows.
Product product_of(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& c,
                   double alpha, double beta) {
  Product product;
  product.left = is_blas_matrix(a) ? a : contiguous(ctx, a);
  product.right = is_blas_matrix(b) ? b : contiguous(ctx, b);
  GemmProblem& problem = product.problem;
  problem.m = c.size(-2);
  problem.n = c.size(-1);
  problem.k = a.size(-1);
  problem.alpha = alpha;
  problem.beta = beta;
  problem.a = operand(product.left);
  problem.b = operand(product.right);
  problem.ldc = operand(c).ld;
  for (int i = 0; i + 2 < c.rank(); ++i) {
    problem.batch.push_back(c.size(i));
    problem.batch_stride_a.push_back(product.left.stride(i));
    problem.batch_stride_b.push_back(product.right.stride(i));
    problem.batch_stride_c.push_back(c.stride(i));
  }
  return product;
}

bool lies_by_rows(const Tensor& c) {
  return is_blas_matrix(c) && !operand(c).transposed;
}

// Whether the backend added the bias by itself, and set gelu where it is defined.
bool added_bias(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor c,
                Tensor gelu) {
  if (c.numel() == 0 || !lies_by_rows(c) || !bias.is_contiguous()) return false;
  const Product product = product_of(ctx, a, b, c, 1.0, 0.0);
  bool done = false;
  dispatch(ctx, a, "matmul", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    done = gemm_bias_kernel(device, product.problem, product.left.data<T>(),
                            product.right.data<T>(), bias.data<T>(), c.mutable_data<T>(),
                            gelu.defined() ? gelu.mutable_data<T>() : nullptr);
  });
  return done;
}

void check_bias(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
  check_shapes(a, b, c);
  check(c.rank() == 2 && bias.shape() == Shape{c.size(1)},
        "matmul: c must be a matrix and bias have shape (", c.size(-1), "); got ", c.shape(),
        " and ", bias.shape());
  check(bias.dtype() == c.dtype() && a.dtype() == c.dtype(), "matmul: dtypes must be equal; got ",
        a.dtype(), " -> ", c.dtype(), " and bias ", bias.dtype());
}

}  // namespace

void gemm(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c, double alpha,
          double beta) {
  check_shapes(a, b, c);
  if (c.numel() == 0) return;
  if (!is_blas_matrix(c)) {
    Tensor packed = empty_like(ctx, c);
    if (beta != 0.0) copy(ctx, c, packed);
    gemm(ctx, a, b, packed, alpha, beta);
    return copy(ctx, packed, c);
  }
  if (operand(c).transposed) {  // by columns: compute the transpose, which lies by rows
    return gemm(ctx, b.transpose(-1, -2), a.transpose(-1, -2), c.transpose(-1, -2), alpha, beta);
  }
  const Product product = product_of(ctx, a, b, c, alpha, beta);
  const Tensor &left = product.left, &right = product.right;
  dispatch(ctx, a, "matmul", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    if (c.dtype() == a.dtype()) {
      gemm_kernel(device, product.problem, left.data<T>(), right.data<T>(), c.mutable_data<T>());
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      gemm_kernel(device, product.problem, left.data<T>(), right.data<T>(),
                  c.mutable_data<float>());
    }
  });
}

void gemm_bias(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor c) {
  check_bias(a, b, bias, c);
  if (added_bias(ctx, a, b, bias, c, Tensor())) return;
  copy(ctx, bias.expand(c.shape()), c);
  gemm(ctx, a, b, c, 1.0, 1.0);
}

bool gemm_bias_gelu(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& bias,
                    Tensor c, Tensor gelu) {
  check_bias(a, b, bias, c);
  check(gelu.shape() == c.shape() && gelu.dtype() == c.dtype(),
        "matmul: gelu must have the shape and dtype of c, ", c.shape(), " ", c.dtype(), "; got ",
        gelu.shape(), " ", gelu.dtype());
  return gelu.is_contiguous() && c.is_contiguous() && added_bias(ctx, a, b, bias, c, gelu);
}

}  // namespace xtrain
