#include "ops/attention/probabilities.h"

#include "core/copy.h"
#include "ops/attention/attention_inputs.h"
#include "ops/attention/probabilities_kernels.h"

namespace xtrain {
namespace {

ProbabilitySizes sizes_of(const Tensor& p) {
  int64_t heads = 1;
  for (int i = 1; i + 2 < p.rank(); ++i) heads *= p.size(i);
  return ProbabilitySizes{p.size(0), heads, p.size(-2), p.size(-1)};
}

class MaskedSoftmaxNode final : public Node {
 public:
  MaskedSoftmaxNode(const Tensor& p, double scale) : p_(*this, p), scale_(scale) {}
  const char* name() const override { return "masked_softmax"; }

  void backward(Gradients& g) override {
    const Tensor dp = contiguous(g.ctx(), g.take(0));
    Tensor ds = reuse_or_empty(g.ctx(), dp);
    dispatch(g.ctx(), *p_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      masked_softmax_backward(device, sizes_of(*p_), scale_, p_->data<T>(), dp.data<T>(),
                              ds.mutable_data<T>());
    });
    g.give(0, std::move(ds));
  }

 private:
  Saved p_;
  double scale_;
};

void apply_dropout(const Context& ctx, const Dropout& dropout, const RandomKey& random,
                   const Tensor& x, Tensor y) {
  dispatch(ctx, x, "probability_dropout", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    probability_dropout_apply(device, sizes_of(x), DropoutSource{dropout, random}, x.data<T>(),
                              y.mutable_data<T>());
  });
}

class ProbabilityDropoutNode final : public Node {
 public:
  ProbabilityDropoutNode(const Dropout& dropout, const RandomKey& random)
      : dropout_(dropout), random_(random) {}
  const char* name() const override { return "probability_dropout"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dp = reuse_or_empty(g.ctx(), dy);
    apply_dropout(g.ctx(), dropout_, random_, dy, dp);
    g.give(0, std::move(dp));
  }

 private:
  Dropout dropout_;
  RandomKey random_;
};

}  // namespace

Var masked_softmax(const Context& ctx, const Var& s, double scale, const AttentionMask& mask) {
  const Tensor scores = contiguous(ctx, s.value);
  const AttentionMask ranges = contiguous_mask(ctx, mask);
  Tensor p = empty_like(ctx, scores);
  dispatch(ctx, scores, "masked_softmax", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    masked_softmax_forward(device, sizes_of(p), scale, VisibleKeys(ranges, p.size(-2), p.size(-1)),
                           scores.data<T>(), p.mutable_data<T>());
  });
  return record<MaskedSoftmaxNode>({s}, p, p, scale);
}

Var probability_dropout(const Context& ctx, const Var& p, const Dropout& dropout) {
  if (!dropout.acts(ctx)) return p;
  const Tensor input = contiguous(ctx, p.value), y = empty_like(ctx, input);
  apply_dropout(ctx, dropout, ctx.random, input, y);
  return record<ProbabilityDropoutNode>({p}, y, dropout, ctx.random);
}

}  // namespace xtrain
