#include "ops/matmul/matmul.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"

namespace xtrain {
namespace {

Shape leading_sizes(const Tensor& x) {
  return Shape(std::span(x.shape().begin(), x.rank() - 2));
}

Shape matrix_shape(Shape leading, int64_t rows, int64_t columns) {
  leading.push_back(rows);
  leading.push_back(columns);
  return leading;
}

// One matrix for each batch index: x, repeated by strides of 0.
Tensor repeated(const Tensor& x, const Shape& batch) {
  return x.expand(matrix_shape(batch, x.size(-2), x.size(-1)));
}

// The same matrices with leading sizes of 1 up to the rank.
Tensor with_rank(const Tensor& x, int rank) {
  Shape shape;
  for (int i = x.rank(); i < rank; ++i) shape.push_back(1);
  for (int64_t size : x.shape()) shape.push_back(size);
  return x.reshape(shape);
}

// target = left right, or target += left right; where a leading size of target is 1 and that of the
// factors is not, the products are summed.
void sum_products(const Context& ctx, const Tensor& left, const Tensor& right, Tensor target,
                  bool accumulate) {
  for (int i = 0; i + 2 < left.rank(); ++i) {
    const int64_t repeats = left.size(i);
    if (target.size(i) == repeats) continue;
    if (repeats == 0 && !accumulate) fill(ctx, target, 0.0);
    for (int64_t j = 0; j < repeats; ++j) {
      sum_products(ctx, left.slice(i, j, 1), right.slice(i, j, 1), target, accumulate || j > 0);
    }
    return;
  }
  gemm(ctx, left, right, target, 1.0, accumulate ? 1.0 : 0.0);
}

class MatmulNode final : public Node {
 public:
  MatmulNode(const Tensor& a, const Tensor& b, Shape batch)
      : a_(*this, a), b_(*this, b), batch_(batch) {}
  const char* name() const override { return "matmul"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    const Tensor a = repeated(*a_, batch_), b = repeated(*b_, batch_);
    write_product(g, 0, *a_, dy, b.transpose(-1, -2));
    write_product(g, 1, *b_, a.transpose(-1, -2), dy);
  }

 private:
  void write_product(Gradients& g, int input, const Tensor& x, const Tensor& left,
                     const Tensor& right) const {
    const auto write = [&](Tensor target, bool accumulate) {
      sum_products(g.ctx(), left, right, with_rank(target, left.rank()), accumulate);
    };
    // A sum over repeats must not round to bf16 at every step.
    if (leading_sizes(x) == batch_) return g.write(input, write);
    g.write_as(input, accumulator_dtype(x.dtype()), write);
  }

  Saved a_, b_;
  Shape batch_;
};

}  // namespace

Var matmul(const Context& ctx, const Var& a, const Var& b) {
  check(a.value.rank() >= 2 && b.value.rank() >= 2, "matmul: ranks must be at least 2; got ",
        a.shape(), " x ", b.shape());
  check(a.size(-1) == b.size(-2), "matmul: inner sizes must agree; got ", a.shape(), " x ",
        b.shape());
  check(a.dtype() == b.dtype(), "matmul: dtypes must be equal; got ", a.dtype(), " x ", b.dtype());
  const Shape batch = broadcast_shape(leading_sizes(a.value), leading_sizes(b.value), "matmul");
  Tensor y = empty(ctx, matrix_shape(batch, a.size(-2), b.size(-1)), a.dtype());
  gemm(ctx, repeated(a.value, batch), repeated(b.value, batch), y);
  return record<MatmulNode>({a, b}, y, a.value, b.value, batch);
}

}  // namespace xtrain
