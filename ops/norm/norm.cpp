#include "ops/norm/norm.h"

#include <algorithm>

#include "core/copy.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/norm/norm_kernels.h"
#include "ops/optional_data.h"

namespace xtrain {
namespace {

void check_vector(const char* op, const char* what, const Tensor& x, const Tensor& vector) {
  if (!vector.defined()) return;
  const Shape shape{x.size(-1)};
  check(vector.shape() == shape, op, ": ", what, " must have shape ", shape, ", the width of x ",
        x.shape(), "; got ", vector.shape());
  check(vector.dtype() == x.dtype(), op, ": ", what, " must have the dtype of x, ", x.dtype(),
        "; got ", vector.dtype());
}

void check_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, NormKind kind,
                double eps) {
  const char* op = name_of(kind);
  check(x.defined() && x.rank() >= 1, op, ": x must have a last dimension to normalise over");
  check(eps > 0.0, op, ": eps must be positive; got ", eps);
  check(kind == NormKind::layer || !bias.defined(), op, ": has no bias; got one of shape ",
        bias.shape());
  check_vector(op, "weight", x, weight);
  check_vector(op, "bias", x, bias);
}

int64_t row_count(const Tensor& x) {
  return x.numel() / std::max<int64_t>(x.size(-1), 1);
}

struct NormResult {
  Tensor sum, y, mean, rstd;
};

// Of x, or of x + branch when there is a branch.
NormResult compute_norm(const Context& ctx, const Tensor& x, const Tensor& branch,
                        const Tensor& weight, const Tensor& bias, NormKind kind, double eps) {
  NormResult r;
  const Dtype statistics = accumulator_dtype(x.dtype());
  const int64_t rows = row_count(x);
  if (branch.defined()) r.sum = empty_like(ctx, x);
  r.y = empty_like(ctx, x);
  if (kind == NormKind::layer) r.mean = empty(ctx, {rows}, statistics);
  r.rstd = empty(ctx, {rows}, statistics);
  dispatch(ctx, x, name_of(kind), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    norm_forward(device,
                 NormForward<T>{kind, rows, x.size(-1), eps, x.data<T>(), data_or_null<T>(branch),
                                mutable_data_or_null<T>(r.sum), data_or_null<T>(weight),
                                data_or_null<T>(bias), r.y.mutable_data<T>(),
                                mutable_data_or_null<A>(r.mean), r.rstd.mutable_data<A>()});
  });
  return r;
}

// What both nodes keep, and the way back through the norm.
class NormBase : public Node {
 public:
  NormBase(NormKind kind, const Tensor& x, const Tensor& weight, const Tensor& mean,
           const Tensor& rstd)
      : kind_(kind), x_(*this, x), weight_(*this, weight), mean_(*this, mean), rstd_(*this, rstd) {}

 protected:
  // dsum (or nothing) plus the gradient of what was normalised, undefined when not wanted. Gives
  // the gradients of weight and bias, which are inputs `weight_input` and the one after it.
  Tensor through_norm(Gradients& g, const Tensor& dy, const Tensor& dsum, bool dx_wanted,
                      int weight_input) const {
    const Context& ctx = g.ctx();
    Tensor dx;
    if (dx_wanted) dx = reuse_or_empty(ctx, dsum.defined() ? dsum : dy);
    dispatch(ctx, *x_, name(), [&](auto device, auto scalar) {
      using T = decltype(scalar);
      using A = Accumulator<T>;
      const int64_t rows = row_count(*x_), width = x_->size(-1);
      const Shape blocks{norm_row_blocks<T>(device, rows, width), width};
      Tensor partial[2];  // of the gradients of weight and bias
      for (int i : {0, 1}) {
        if (g.wanted(weight_input + i)) partial[i] = empty(ctx, blocks, dtype_of<A>);
      }
      norm_backward(device,
                    NormBackward<T>{kind_, rows, width, x_->data<T>(), data_or_null<T>(*weight_),
                                    data_or_null<A>(*mean_), rstd_->data<A>(), dy.data<T>(),
                                    data_or_null<T>(dsum), mutable_data_or_null<T>(dx),
                                    mutable_data_or_null<A>(partial[0]),
                                    mutable_data_or_null<A>(partial[1])});
      for (int i : {0, 1}) {
        g.write_as(weight_input + i, dtype_of<A>, [&](Tensor target, bool accumulate) {
          sum_rows(device, blocks[0], width, partial[i].data<A>(), accumulate,
                   target.mutable_data<A>(), target.stride(0));
        });
      }
    });
    return dx;
  }

  NormKind kind() const { return kind_; }

 private:
  NormKind kind_;
  Saved x_, weight_, mean_, rstd_;
};

class NormNode final : public NormBase {  // x, weight, bias -> y
 public:
  using NormBase::NormBase;
  const char* name() const override { return name_of(kind()); }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    Tensor dx = through_norm(g, dy, Tensor(), g.wanted(0), 1);
    g.give(0, std::move(dx));
  }
};

class AddNormNode final : public NormBase {  // x, branch, weight, bias -> sum, normed
 public:
  using NormBase::NormBase;
  const char* name() const override { return "add_norm"; }

  void backward(Gradients& g) override {
    Tensor dsum = g.take(0);
    const Tensor dnormed = contiguous(g.ctx(), g.take(1));
    if (dnormed.defined()) {
      dsum = contiguous(g.ctx(), dsum);
      dsum = through_norm(g, dnormed, dsum, g.wanted(0) || g.wanted(1), 2);
    }
    g.give(0, dsum);
    g.give(1, std::move(dsum));
  }
};

}  // namespace

const char* name_of(NormKind kind) {
  return kind == NormKind::layer ? "layer_norm" : "rms_norm";
}

Var norm(const Context& ctx, const Var& x, const Var& weight, const Var& bias, NormKind kind,
         double eps) {
  check_norm(x.value, weight.value, bias.value, kind, eps);
  const Tensor input = contiguous(ctx, x.value), scale = contiguous(ctx, weight.value);
  const NormResult r =
      compute_norm(ctx, input, Tensor(), scale, contiguous(ctx, bias.value), kind, eps);
  return record<NormNode>({x, weight, bias}, r.y, kind, input, scale, r.mean, r.rstd);
}

AddNorm add_norm(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                 const Var& bias, NormKind kind, double eps) {
  check_norm(x.value, weight.value, bias.value, kind, eps);
  check(branch.defined() && branch.shape() == x.shape() && branch.dtype() == x.dtype(),
        "add_norm: x and branch must have one shape and dtype; got ", x.shape(), " ", x.dtype(),
        " and ", branch.shape(), " ", branch.dtype());
  const Tensor scale = contiguous(ctx, weight.value);
  const NormResult r = compute_norm(ctx, contiguous(ctx, x.value), contiguous(ctx, branch.value),
                                    scale, contiguous(ctx, bias.value), kind, eps);
  const Var inputs[] = {x, branch, weight, bias};
  const std::vector<Var> outputs =
      record_outputs<AddNormNode>(inputs, {r.sum, r.y}, kind, r.sum, scale, r.mean, r.rstd);
  return {outputs[0], outputs[1]};
}

AddNorm add_norm_composed(const Context& ctx, const Var& x, const Var& branch, const Var& weight,
                          const Var& bias, NormKind kind, double eps) {
  const Var sum = add(ctx, x, branch);
  return {sum, norm(ctx, sum, weight, bias, kind, eps)};
}

}  // namespace xtrain
