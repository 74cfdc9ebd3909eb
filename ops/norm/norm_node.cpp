#include "ops/norm/norm_node.h"

#include <algorithm>

#include "core/copy.h"
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

int64_t row_count(const Tensor& x) {
  return x.numel() / std::max<int64_t>(x.size(-1), 1);
}

}  // namespace

void check_norm(const char* op, const Tensor& x, const Tensor& branch, const Tensor& weight,
                const Tensor& bias, NormKind kind, double eps) {
  const char* norm = name_of(kind);
  check(x.defined() && x.rank() >= 1, norm, ": x must have a last dimension to normalise over");
  check(eps > 0.0, norm, ": eps must be positive; got ", eps);
  check(kind == NormKind::layer || !bias.defined(), norm, ": has no bias; got one of shape ",
        bias.shape());
  check_vector(norm, "weight", x, weight);
  check_vector(norm, "bias", x, bias);
  check(!branch.defined() || (branch.shape() == x.shape() && branch.dtype() == x.dtype()), op,
        ": x and branch must have one shape and dtype; got ", x.shape(), " ", x.dtype(), " and ",
        branch.shape(), " ", branch.dtype());
}

NormResult normalize(const Context& ctx, const char* op, const Tensor& x, const Tensor& branch,
                     const Tensor& weight, const Tensor& bias, NormKind kind, double eps) {
  check_norm(op, x, branch, weight, bias, kind, eps);
  const Tensor first = contiguous(ctx, x), second = contiguous(ctx, branch);
  const Dtype statistics = accumulator_dtype(x.dtype());
  const int64_t rows = row_count(x);
  NormResult r;
  r.weight = contiguous(ctx, weight);
  r.bias = contiguous(ctx, bias);
  r.x = branch.defined() ? empty_like(ctx, first) : first;
  r.y = empty_like(ctx, first);
  if (kind == NormKind::layer) r.mean = empty(ctx, {rows}, statistics);
  r.rstd = empty(ctx, {rows}, statistics);
  Tensor sum = branch.defined() ? r.x : Tensor();
  dispatch(ctx, first, name_of(kind), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    norm_forward(device, NormForward<T>{kind, rows, x.size(-1), eps, first.data<T>(),
                                        data_or_null<T>(second), mutable_data_or_null<T>(sum),
                                        data_or_null<T>(r.weight), data_or_null<T>(r.bias),
                                        r.y.mutable_data<T>(), mutable_data_or_null<A>(r.mean),
                                        r.rstd.mutable_data<A>()});
  });
  return r;
}

void give_row_sums(Gradients& g, int first_input, const Tensor (&partial)[2]) {
  const Tensor& any = partial[0].defined() ? partial[0] : partial[1];
  if (!any.defined()) return;
  dispatch(g.ctx(), any, "norm", [&](auto device, auto scalar) {
    using A = Accumulator<decltype(scalar)>;
    RowSums<A> sums[2];
    const auto with_target = [&](int i, const auto& then) {
      g.write_as(first_input + i, dtype_of<A>, [&, i](Tensor target, bool accumulate) {
        sums[i] = {partial[i].data<A>(), accumulate, target.mutable_data<A>(), target.stride(0)};
        then();
        sums[i] = {};
      });
    };
    const auto run = [&] { sum_rows(device, any.size(0), any.size(1), sums[0], sums[1]); };
    if (partial[0].defined() && partial[1].defined() && !g.same(first_input, first_input + 1)) {
      // Both targets are open at a time: one launch writes them.
      return with_target(0, [&] { with_target(1, run); });
    }
    for (int i : {0, 1}) {
      if (partial[i].defined()) with_target(i, run);
    }
  });
}

NormBase::SumGradient NormBase::through_norm(Gradients& g, const Tensor& dy, const Tensor& dsum,
                                             bool dx_wanted, int weight_input,
                                             const Rebuilt& rebuilt) const {
  const Context& ctx = g.ctx();
  Tensor y = rebuilt.y, dx, column_sums;
  if (y.defined() && !dsum.defined()) {
    dx = empty_like(ctx, dy);
  } else if (y.defined() || dx_wanted) {
    dx = reuse_or_empty(ctx, dsum.defined() ? dsum : dy);
  }
  dispatch(ctx, *x_, name(), [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    const int64_t rows = row_count(*x_), width = x_->size(-1);
    const Shape blocks{norm_row_blocks<T>(device, rows, width), width};
    Tensor partial[2];  // of the gradients of weight and bias
    for (int i : {0, 1}) {
      if (g.wanted(weight_input + i)) partial[i] = empty(ctx, blocks, dtype_of<A>);
    }
    if (biased_branch_ && dx_wanted) column_sums = empty(ctx, blocks, dtype_of<A>);
    norm_backward(
        device,
        NormBackward<T>{kind_, rows, width, x_->data<T>(), data_or_null<T>(*weight_),
                        data_or_null<T>(rebuilt.bias), data_or_null<A>(*mean_), rstd_->data<A>(),
                        dy.data<T>(), data_or_null<T>(dsum), mutable_data_or_null<T>(dx),
                        mutable_data_or_null<T>(y), mutable_data_or_null<A>(partial[0]),
                        mutable_data_or_null<A>(partial[1]), mutable_data_or_null<A>(column_sums)});
    give_row_sums(g, weight_input, partial);
  });
  return {dx, column_sums};
}

void NormBase::give_to_both(Gradients& g, SumGradient d) {
  g.give(0, d.dx);
  g.give(1, std::move(d.dx), std::move(d.column_sums));
}

}  // namespace xtrain
