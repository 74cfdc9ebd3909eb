#include "ops/arithmetic/arithmetic.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/arithmetic/arithmetic_kernels.h"
#include "ops/reduce/reduce.h"

namespace xtrain {
namespace {

template <class T>
StridedInput<T> strided_input(const Tensor& x) {
  return {x.data<T>(), x.strides()};
}

// y = kind(a, b) with a and b repeated into y's shape. y has their dtype or its accumulator's.
void compute(const Context& ctx, Arithmetic kind, const Tensor& a, const Tensor& b, Tensor y) {
  const Tensor left = a.expand(y.shape()), right = b.expand(y.shape());
  dispatch(ctx, a, name_of(kind), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    const auto run = [&](auto* out) {
      arithmetic_forward(device, kind, y.shape(), strided_input<T>(left), strided_input<T>(right),
                         out);
    };
    y.dtype() == a.dtype() ? run(y.mutable_data<T>()) : run(y.mutable_data<Accumulator<T>>());
  });
}

Tensor scaled(const Context& ctx, const Tensor& x, double factor) {
  const Tensor input = contiguous(ctx, x);
  Tensor y = empty_like(ctx, input);
  dispatch(ctx, input, "scale", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    scale_forward(device, y.numel(), input.data<T>(), factor, y.mutable_data<T>());
  });
  return y;
}

// A gradient of the full shape that write(target) computes, summed to the operand's shape. dy's
// buffer is used again when nobody else holds it.
template <class Write>
Tensor summed(const Context& ctx, const Tensor& dy, const Shape& operand, Write&& write) {
  if (operand == dy.shape()) {
    Tensor dx = reuse_or_empty(ctx, dy);
    write(dx);
    return dx;
  }
  Tensor full = empty(ctx, dy.shape(), accumulator_dtype(dy.dtype()));
  write(full);
  return sum_to_shape(ctx, full, operand, dy.dtype());
}

class AddNode final : public Node {
 public:
  AddNode(const Shape& a, const Shape& b) : a_(a), b_(b) {}
  const char* name() const override { return "add"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    give(g, 0, a_, dy);
    give(g, 1, b_, dy);
  }

 private:
  static void give(Gradients& g, int input, const Shape& shape, const Tensor& dy) {
    if (!g.wanted(input)) return;
    g.give(input, shape == dy.shape() ? dy : sum_to_shape(g.ctx(), dy, shape, dy.dtype()));
  }

  Shape a_, b_;
};

class SubNode final : public Node {
 public:
  SubNode(const Shape& a, const Shape& b) : a_(a), b_(b) {}
  const char* name() const override { return "sub"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    const auto sum = [&](const Shape& shape, double factor) {
      return sum_to_shape(g.ctx(), dy, shape, dy.dtype(), factor);
    };
    if (g.wanted(0)) g.give(0, a_ == dy.shape() ? dy : sum(a_, 1.0));
    if (g.wanted(1)) g.give(1, b_ == dy.shape() ? scaled(g.ctx(), dy, -1.0) : sum(b_, -1.0));
  }

 private:
  Shape a_, b_;
};

// mul and div keep the operands that the wanted gradients need.
const Tensor& kept_if(bool needed, const Tensor& x) {
  static const Tensor nothing;
  return needed ? x : nothing;
}

class MulNode final : public Node {
 public:
  MulNode(const Var& a, const Var& b)
      : a_shape_(a.shape()),
        b_shape_(b.shape()),
        a_(*this, kept_if(b.tape, a.value)),
        b_(*this, kept_if(a.tape, b.value)) {}
  const char* name() const override { return "mul"; }

  void backward(Gradients& g) override {
    Tensor dy = g.take(0);
    if (g.wanted(0)) g.give(0, product(g.ctx(), dy, *b_, a_shape_));
    if (g.wanted(1)) g.give(1, product(g.ctx(), std::move(dy), *a_, b_shape_));
  }

 private:
  static Tensor product(const Context& ctx, Tensor dy, const Tensor& other, const Shape& operand) {
    return summed(ctx, dy, operand,
                  [&](Tensor out) { compute(ctx, Arithmetic::mul, dy, other, out); });
  }

  Shape a_shape_, b_shape_;
  Saved a_, b_;
};

class DivNode final : public Node {
 public:
  DivNode(const Var& a, const Var& b)
      : a_shape_(a.shape()), a_(*this, kept_if(b.tape, a.value)), b_(*this, b.value) {}
  const char* name() const override { return "div"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    if (g.wanted(1)) g.give(1, divisor_gradient(g.ctx(), dy));
    if (!g.wanted(0)) return;
    g.give(0, summed(g.ctx(), dy, a_shape_,
                     [&](Tensor out) { compute(g.ctx(), Arithmetic::div, dy, *b_, out); }));
  }

 private:
  Tensor divisor_gradient(const Context& ctx, const Tensor& dy) const {
    const Tensor a = a_->expand(dy.shape()), b = b_->expand(dy.shape());
    const Tensor shared = dy;  // a second holder: dy is read again for a's gradient
    return summed(ctx, shared, b_->shape(), [&](Tensor out) {
      dispatch(ctx, dy, "div", [&](auto device, auto scalar) {
        using T = decltype(scalar);
        const auto run = [&](auto* db) {
          div_backward_divisor(device, dy.shape(), strided_input<T>(dy), strided_input<T>(a),
                               strided_input<T>(b), db);
        };
        out.dtype() == dy.dtype() ? run(out.mutable_data<T>())
                                  : run(out.mutable_data<Accumulator<T>>());
      });
    });
  }

  Shape a_shape_;
  Saved a_, b_;
};

class ScaleNode final : public Node {
 public:
  explicit ScaleNode(double factor) : factor_(factor) {}
  const char* name() const override { return "scale"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    dispatch(g.ctx(), dy, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      scale_forward(device, dx.numel(), dy.data<T>(), factor_, dx.mutable_data<T>());
    });
    g.give(0, std::move(dx));
  }

 private:
  double factor_;
};

Tensor checked_result(const Context& ctx, Arithmetic kind, const Tensor& a, const Tensor& b) {
  const char* op = name_of(kind);
  check(a.defined() && b.defined(), op, ": both operands must be given; got an undefined one");
  check(a.device() == b.device(), op, ": operands must lie on one device; got ", a.device(),
        " and ", b.device());
  check(a.dtype() == b.dtype(), op, ": dtypes must agree; got ", a.dtype(), " and ", b.dtype(),
        "; cast one of them");
  Tensor y = empty(ctx, broadcast_shape(a.shape(), b.shape(), op), a.dtype());
  compute(ctx, kind, a, b, y);
  return y;
}

}  // namespace

const char* name_of(Arithmetic kind) {
  switch (kind) {
    case Arithmetic::add:
      return "add";
    case Arithmetic::sub:
      return "sub";
    case Arithmetic::mul:
      return "mul";
    case Arithmetic::div:
      return "div";
  }
  return "?";
}

Var add(const Context& ctx, const Var& a, const Var& b) {
  Tensor y = checked_result(ctx, Arithmetic::add, a.value, b.value);
  return record<AddNode>({a, b}, std::move(y), a.shape(), b.shape());
}

Var sub(const Context& ctx, const Var& a, const Var& b) {
  Tensor y = checked_result(ctx, Arithmetic::sub, a.value, b.value);
  return record<SubNode>({a, b}, std::move(y), a.shape(), b.shape());
}

Var mul(const Context& ctx, const Var& a, const Var& b) {
  Tensor y = checked_result(ctx, Arithmetic::mul, a.value, b.value);
  return record<MulNode>({a, b}, std::move(y), a, b);
}

Var div(const Context& ctx, const Var& a, const Var& b) {
  Tensor y = checked_result(ctx, Arithmetic::div, a.value, b.value);
  return record<DivNode>({a, b}, std::move(y), a, b);
}

Var scale(const Context& ctx, const Var& x, double factor) {
  return record<ScaleNode>({x}, scaled(ctx, x.value, factor), factor);
}

}  // namespace xtrain
