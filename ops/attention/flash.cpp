#include "core/copy.h"
#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/flash_kernels.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

// Kernels read heads by strides but need each head's elements side by side.
Tensor with_contiguous_heads(const Context& ctx, const Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : contiguous(ctx, x);
}

HeadStrides strides_of(const Tensor& x) {
  return HeadStrides{x.stride(0), x.stride(1), x.stride(2)};
}

FlashProblem flash_problem(const AttentionSizes& sizes, double scale, const AttentionMask& mask,
                           bool drops, const DropoutSource& dropout, const Tensor& q,
                           const Tensor& k, const Tensor& v) {
  return FlashProblem{sizes,         scale,        VisibleKeys(mask, sizes.queries, sizes.keys),
                      drops,         dropout,      strides_of(q),
                      strides_of(k), strides_of(v)};
}

struct GradientTarget {
  Tensor tensor;  // undefined: not wanted
  bool accumulate = false;
};

// The kernel fills the gradients of q, k and v in one pass, so their targets are collected first
// and written before backward returns.
GradientTarget target_of(Gradients& g, int input) {
  GradientTarget target;
  g.write(input, [&](Tensor tensor, bool accumulate) { target = {tensor, accumulate}; });
  return target;
}

template <class T>
FlashGradient flash_gradient(GradientTarget& target) {
  Tensor& x = target.tensor;
  if (!x.defined()) return FlashGradient{};
  const bool wide = x.dtype() != dtype_of<T>;
  void* data = wide ? static_cast<void*>(x.mutable_data<Accumulator<T>>()) : x.mutable_data<T>();
  return FlashGradient{data,        wide,        target.accumulate, x.stride(0),
                       x.stride(1), x.stride(2), x.stride(3)};
}

class FlashAttentionNode final : public Node {
 public:
  FlashAttentionNode(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                     const Tensor& log_sum, const AttentionMask& mask, const AttentionSizes& sizes,
                     double scale, bool drops, const DropoutSource& dropout)
      : q_(*this, q),
        k_(*this, k),
        v_(*this, v),
        o_(*this, o),
        log_sum_(*this, log_sum),
        position_base_(*this, mask.position_base),
        key_length_(*this, mask.key_length),
        document_start_(*this, mask.document_start),
        mask_(mask),
        sizes_(sizes),
        scale_(scale),
        drops_(drops),
        dropout_(dropout) {}
  const char* name() const override { return "flash_attention"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    GradientTarget dq = target_of(g, 0), dk = target_of(g, 1), dv = target_of(g, 2);
    const FlashProblem problem =
        flash_problem(sizes_, scale_, mask_, drops_, dropout_, *q_, *k_, *v_);
    dispatch(g.ctx(), *q_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      flash_backward(device, problem, q_->data<T>(), k_->data<T>(), v_->data<T>(), o_->data<T>(),
                     log_sum_->data<Accumulator<T>>(), dy.data<T>(), flash_gradient<T>(dq),
                     flash_gradient<T>(dk), flash_gradient<T>(dv));
    });
  }

 private:
  Saved q_, k_, v_, o_, log_sum_, position_base_, key_length_, document_start_;
  AttentionMask mask_;
  AttentionSizes sizes_;
  double scale_;
  bool drops_;
  DropoutSource dropout_;
};

// Each input needs a gradient slot of its own for target_of; a value given twice gets one by a
// view.
Var distinct(const Context& ctx, const Var& x, std::initializer_list<const Var*> others) {
  for (const Var* other : others) {
    if (x.tape && x.slot == other->slot) return reshape(ctx, x, x.shape());
  }
  return x;
}

}  // namespace

Var attention_flash(const Context& ctx, const Var& q, const Var& k, const Var& v,
                    const AttentionOptions& options) {
  const AttentionSizes n = check_attention(ctx, q.value, k.value, v.value, options);
  const double scale = scale_of(options, n.head_dim);
  const AttentionMask mask = contiguous_mask(ctx, options.mask);
  const Tensor queries = with_contiguous_heads(ctx, q.value);
  const Tensor keys = with_contiguous_heads(ctx, k.value);
  const Tensor values = with_contiguous_heads(ctx, v.value);
  const bool drops = options.dropout.acts(ctx);
  const DropoutSource dropout{options.dropout, ctx.random};
  const FlashProblem problem = flash_problem(n, scale, mask, drops, dropout, queries, keys, values);
  Tensor o = empty(ctx, q.shape(), q.dtype());
  Tensor log_sum = empty(ctx, {n.batch, n.heads, n.queries}, accumulator_dtype(q.dtype()));
  dispatch(ctx, queries, "attention", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    flash_forward(device, problem, queries.data<T>(), keys.data<T>(), values.data<T>(),
                  o.mutable_data<T>(), log_sum.mutable_data<Accumulator<T>>());
  });
  return record<FlashAttentionNode>({q, distinct(ctx, k, {&q}), distinct(ctx, v, {&q, &k})}, o,
                                    queries, keys, values, o, log_sum, mask, n, scale, drops,
                                    dropout);
}

}  // namespace xtrain
