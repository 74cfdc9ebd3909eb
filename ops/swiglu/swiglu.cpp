#include "ops/swiglu/swiglu.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/activation/activation.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/swiglu/swiglu_kernels.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

// The size of y for gate_up [..., 2F].
Shape half_shape(const Tensor& gate_up) {
  check(gate_up.rank() >= 1 && gate_up.size(-1) % 2 == 0,
        "swiglu: the last size must be even (gate and up); got ", gate_up.shape());
  Shape shape = gate_up.shape();
  shape[shape.rank() - 1] /= 2;
  return shape;
}

int64_t rows_of(const Tensor& y) {
  return y.numel() == 0 ? 0 : y.numel() / y.size(-1);
}

class SwigluNode final : public Node {
 public:
  explicit SwigluNode(const Tensor& gate_up) : gate_up_(*this, gate_up) {}
  const char* name() const override { return "swiglu"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    const Tensor gate_up = gate_up_.release();
    Tensor dgate_up = reuse_or_empty(g.ctx(), gate_up);
    dispatch(g.ctx(), dy, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      swiglu_backward(device, rows_of(dy), dy.size(-1), gate_up.data<T>(), dy.data<T>(),
                      dgate_up.mutable_data<T>(), static_cast<T*>(nullptr));
    });
    g.give(0, std::move(dgate_up));
  }

 private:
  Saved gate_up_;
};

}  // namespace

Var swiglu(const Context& ctx, const Var& gate_up) {
  const Tensor input = contiguous(ctx, gate_up.value);
  Tensor y = empty(ctx, half_shape(input), input.dtype());
  dispatch(ctx, input, "swiglu", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    swiglu_forward(device, rows_of(y), y.size(-1), input.data<T>(), y.mutable_data<T>());
  });
  return record<SwigluNode>({gate_up}, y, input);
}

Var swiglu_composed(const Context& ctx, const Var& gate_up) {
  const Shape half = half_shape(gate_up.value);
  const int64_t width = half[half.rank() - 1];
  const std::vector<Var> parts = split(ctx, gate_up, -1, {width, width});
  return mul(ctx, silu(ctx, parts[0]), parts[1]);
}

}  // namespace xtrain
