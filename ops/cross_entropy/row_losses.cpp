#include "ops/cross_entropy/row_losses.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/cross_entropy/cross_entropy_kernels.h"

namespace xtrain {
namespace {

LogitRows rows_of(const Targets& targets, const Tensor& logits, int64_t first) {
  LogitRows rows;
  rows.rows = logits.size(0);
  rows.columns = logits.size(1);
  rows.rule = targets.rule;
  rows.targets = targets.ids.data<int32_t>() + first;
  return rows;
}

}  // namespace

Targets check_targets(const Context& ctx, const char* op, const Tensor& targets, int64_t rows,
                      int64_t columns, int64_t vocab_size, int32_t ignore_index) {
  check(targets.dtype() == Dtype::i32, op, ": targets must be i32; got ", targets.dtype());
  check(targets.shape() == Shape{rows}, op, ": targets must have shape (", rows,
        "), one a row; got ", targets.shape());
  check(vocab_size >= 0 && vocab_size <= columns, op, ": vocab_size must be in [0, ", columns,
        "], the number of columns; got ", vocab_size);
  Targets result;
  result.ids = contiguous(ctx, targets);
  result.rule =
      IndexRule{op, "targets", vocab_size == 0 ? columns : vocab_size, true, ignore_index};
  return result;
}

void compute_losses(const Context& ctx, const Targets& targets, const Tensor& logits, int64_t first,
                    Tensor losses) {
  dispatch(ctx, logits, "cross_entropy", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    cross_entropy_losses(device, rows_of(targets, logits, first), logits.data<T>(),
                         losses.mutable_data<A>() + first);
  });
}

void compute_dlogits(const Context& ctx, const Targets& targets, const Tensor& logits,
                     int64_t first, const Tensor& dsum, Tensor losses, Tensor dlogits) {
  dispatch(ctx, logits, "cross_entropy", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    const A* factor = dsum.defined() ? dsum.data<A>() : nullptr;
    cross_entropy_gradients(device, rows_of(targets, logits, first), logits.data<T>(), factor,
                            losses.mutable_data<A>() + first, dlogits.mutable_data<T>());
  });
}

LossTotals total_losses(const Context& ctx, const Targets& targets, const Tensor& losses) {
  LossTotals totals{empty(ctx, {1}, losses.dtype()), empty(ctx, {1}, Dtype::i64)};
  dispatch(ctx, losses, "cross_entropy", [&](auto device, auto scalar) {
    using A = Accumulator<decltype(scalar)>;
    total_row_losses(device, targets.rule, losses.numel(), targets.ids.data<int32_t>(),
                     losses.data<A>(), totals.sum.template mutable_data<A>(),
                     totals.count.template mutable_data<int64_t>());
  });
  return totals;
}

void scale_dlogits(const Context& ctx, const Tensor& dsum, Tensor dlogits) {
  dispatch(ctx, dlogits, "cross_entropy", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    scale_in_place(device, dlogits.numel(), dsum.data<Accumulator<T>>(), dlogits.mutable_data<T>());
  });
}

}  // namespace xtrain
