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
  rows.vocab = targets.vocab;
  rows.ignore_index = targets.ignore_index;
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
  result.vocab = vocab_size == 0 ? columns : vocab_size;
  result.ignore_index = ignore_index;
  const int32_t* ids = result.ids.data<int32_t>();
  const TargetScan scan = scan_targets(Cpu{ctx}, rows, ids, result.vocab, ignore_index);
  check(scan.first_illegal == rows, op, ": targets must lie in [0, ", result.vocab,
        ") or be the ignore index ", ignore_index, "; got ",
        scan.first_illegal < rows ? ids[scan.first_illegal] : 0, " at position ",
        scan.first_illegal);
  result.count = from_host(ctx, std::vector<int64_t>{scan.counted}, {1});
  return result;
}

RowLosses empty_row_losses(const Context& ctx, int64_t rows, Dtype dtype) {
  const Dtype sum_dtype = accumulator_dtype(dtype);
  return {empty(ctx, {rows}, sum_dtype), empty(ctx, {rows, 2}, sum_dtype)};
}

void compute_row_losses(const Context& ctx, const Targets& targets, const Tensor& logits,
                        int64_t first, RowLosses& result) {
  dispatch(ctx, logits, "cross_entropy", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    cross_entropy_forward(device, rows_of(targets, logits, first), logits.data<T>(),
                          result.losses.mutable_data<A>() + first,
                          result.statistics.mutable_data<A>() + 2 * first);
  });
}

Tensor sum_of_losses(const Context& ctx, const Tensor& losses) {
  Tensor sum = empty(ctx, {1}, losses.dtype());
  dispatch(ctx, losses, "cross_entropy", [&](auto device, auto scalar) {
    using A = Accumulator<decltype(scalar)>;
    sum_losses(device, losses.numel(), losses.data<A>(), sum.mutable_data<A>());
  });
  return sum;
}

void compute_dlogits(const Context& ctx, const Targets& targets, const Tensor& logits,
                     int64_t first, const Tensor& statistics, const Tensor& dsum, Tensor dlogits) {
  dispatch(ctx, logits, "cross_entropy", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    cross_entropy_backward(device, rows_of(targets, logits, first), logits.data<T>(),
                           statistics.data<A>() + 2 * first, dsum.data<A>(),
                           dlogits.mutable_data<T>());
  });
}

}  // namespace xtrain
