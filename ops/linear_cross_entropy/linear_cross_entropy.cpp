#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include "core/copy.h"
#include "core/error.h"
#include "core/gemm.h"
#include "ops/cross_entropy/row_losses.h"
#include "ops/linear/linear.h"

namespace xtrain {
namespace {

// On the CPU the logits of a chunk should stay in the caches until they are used. On a GPU the
// products want many rows and the logits may take memory, an eighth of what a large one has.
int64_t default_chunk_rows(const Context& ctx, int64_t columns, Dtype dtype) {
  const bool gpu = ctx.device.is_cuda();
  const int64_t logits = gpu ? (int64_t{1} << 34) / size_of(dtype) : int64_t{1} << 22;
  const int64_t least_rows = gpu ? 8192 : 128;
  return std::max(least_rows, logits / std::max<int64_t>(1, columns));
}

// The weight with the rows that products take behind it.
Tensor with_padding(const Context& ctx, const Tensor& weight, int64_t zero_rows) {
  if (zero_rows > 0) return weight.with_rows_behind(zero_rows);
  const int64_t rows = weight.size(0), more = head_zero_rows(ctx, rows);
  if (more == 0) return weight;
  const Tensor padded = empty(ctx, {rows + more, weight.size(1)}, weight.dtype());
  copy(ctx, weight, padded.slice(0, 0, rows));
  fill(ctx, padded.slice(0, rows, more), 0.0);
  return padded;
}

// Calls use(logits, x_rows, first) for one chunk of rows after the other. The logits of all chunks
// share one buffer, which `use` may overwrite.
template <class Use>
void for_each_chunk(const Context& ctx, const Tensor& x, const Tensor& weight, int64_t chunk_rows,
                    Use&& use) {
  const int64_t rows = x.size(0);
  const Tensor buffer = empty(ctx, {std::min(rows, chunk_rows), weight.size(0)}, x.dtype());
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    const int64_t n = std::min(chunk_rows, rows - first);
    const Tensor x_rows = x.slice(0, first, n), logits = buffer.slice(0, 0, n);
    gemm(ctx, x_rows, weight.transpose(0, 1), logits);
    use(logits, x_rows, first);
  }
}

class LinearCrossEntropyNode final : public Node {
 public:
  // dlogits: of all rows for dsum 1, or undefined, and then they are computed again.
  LinearCrossEntropyNode(const Tensor& x, const Tensor& weight, const Targets& targets,
                         int64_t chunk_rows, int64_t zero_rows, const Tensor& dlogits)
      : targets_(targets),
        chunk_rows_(chunk_rows),
        zero_rows_(zero_rows),
        x_(*this, x),
        weight_(*this, weight),
        ids_(*this, targets.ids),
        dlogits_(*this, dlogits) {}
  const char* name() const override { return "linear_cross_entropy"; }

  void backward(Gradients& g) override {
    const Tensor dsum = g.take(0), x = x_.release();
    // Rows of x are read for the last time before their gradient is written.
    const Tensor dx = g.wanted(0) ? reuse_or_empty(g.ctx(), x) : Tensor();
    const Tensor weight = with_padding(g.ctx(), *weight_, zero_rows_);
    if (g.wanted(1)) {
      g.write_as(1, accumulator_dtype(x.dtype()), [&](Tensor dweight, bool accumulate) {
        if (!accumulate && x.size(0) == 0) fill(g.ctx(), dweight, 0.0);
        write_both(g.ctx(), dsum, x, weight, {dx, dweight, accumulate});
      });
    } else {
      backward_rows(g.ctx(), dsum, x, weight, {dx, Tensor(), false});
    }
    g.give(0, dx);
  }

 private:
  // Where the gradients go; undefined tensors are not wanted.
  struct Products {
    Tensor dx, dweight;
    bool accumulate;
  };

  // dweight has the rows of the parameter; weight may have padding behind them.
  void write_both(const Context& ctx, const Tensor& dsum, const Tensor& x, const Tensor& weight,
                  const Products& out) const {
    const int64_t rows = out.dweight.size(0);
    if (weight.size(0) == rows || x.size(0) == 0) {
      return backward_rows(ctx, dsum, x, weight, out);
    }
    if (zero_rows_ > 0) {
      const Tensor whole = out.dweight.with_rows_behind(zero_rows_);
      return backward_rows(ctx, dsum, x, weight, {out.dx, whole, out.accumulate});
    }
    const Tensor padded = empty(ctx, weight.shape(), out.dweight.dtype());
    backward_rows(ctx, dsum, x, weight, {out.dx, padded, false});
    const auto write = out.accumulate ? add_into : copy;
    write(ctx, padded.slice(0, 0, rows), out.dweight);
  }

  void backward_rows(const Context& ctx, const Tensor& dsum, const Tensor& x, const Tensor& weight,
                     const Products& out) const {
    if (dlogits_->defined()) {
      scale_dlogits(ctx, dsum, *dlogits_);
      return add_products(ctx, *dlogits_, x, weight, 0, out);
    }
    Tensor losses = empty(ctx, {x.size(0)}, accumulator_dtype(x.dtype()));
    for_each_chunk(ctx, x, weight, chunk_rows_,
                   [&](const Tensor& logits, const Tensor& x_rows, int64_t first) {
                     compute_dlogits(ctx, targets_, logits, first, dsum, losses, logits);
                     add_products(ctx, logits, x_rows, weight, first, out);
                   });
  }

  // What the rows from `first` on add to the gradients. dx may lie over x.
  void add_products(const Context& ctx, const Tensor& dlogits, const Tensor& x_rows,
                    const Tensor& weight, int64_t first, const Products& out) const {
    if (out.dweight.defined()) {
      const bool add = out.accumulate || first > 0;
      gemm(ctx, dlogits.transpose(0, 1), x_rows, out.dweight, 1.0, add ? 1.0 : 0.0);
    }
    if (out.dx.defined()) {
      gemm(ctx, dlogits, weight, out.dx.slice(0, first, dlogits.size(0)));
    }
  }

  Targets targets_;
  int64_t chunk_rows_, zero_rows_;
  Saved x_, weight_, ids_, dlogits_;
};

void check_arguments(const Tensor& x, const Tensor& weight, int64_t chunk_rows, int64_t zero_rows) {
  check(x.rank() == 2 && weight.rank() == 2,
        "linear_cross_entropy: x must be [N, C] and weight [V, C]; got ", x.shape(), " and ",
        weight.shape());
  check(x.size(1) == weight.size(1), "linear_cross_entropy: inner sizes must agree; got x ",
        x.shape(), " and weight ", weight.shape());
  check(x.dtype() == weight.dtype(), "linear_cross_entropy: dtypes must be equal; got x ",
        x.dtype(), " and weight ", weight.dtype());
  check(chunk_rows >= 0, "linear_cross_entropy: chunk_rows must be 0 (chosen) or more; got ",
        chunk_rows);
  check(zero_rows >= 0, "linear_cross_entropy: zero_rows must be 0 or more; got ", zero_rows);
}

}  // namespace

// With 50257 columns cuBLASLt's products take seven times as long as with 50304.
int64_t head_zero_rows(const Context& ctx, int64_t rows) {
  if (!ctx.device.is_cuda()) return 0;
  const int64_t multiple = rows < 4096 ? 8 : 64;
  return (rows + multiple - 1) / multiple * multiple - rows;
}

Loss linear_cross_entropy(const Context& ctx, const Var& x, const Var& weight,
                          const Tensor& targets, int64_t vocab_size, int32_t ignore_index,
                          int64_t chunk_rows, int64_t zero_rows) {
  check_arguments(x.value, weight.value, chunk_rows, zero_rows);
  const Targets checked = check_targets(ctx, "linear_cross_entropy", targets, x.size(0),
                                        weight.size(0), vocab_size, ignore_index);
  if (chunk_rows == 0) chunk_rows = default_chunk_rows(ctx, weight.size(0), x.dtype());
  // One chunk is kept and needs no second product. Several are not: only one exists at a time.
  const bool wanted = common_tape(std::array{x, weight}) != nullptr;
  const bool keeps = wanted && checked.rows() <= chunk_rows;
  Tensor losses = empty(ctx, {checked.rows()}, accumulator_dtype(x.dtype()));
  Tensor dlogits;
  for_each_chunk(ctx, x.value, with_padding(ctx, weight.value, zero_rows), chunk_rows,
                 [&](const Tensor& logits, const Tensor&, int64_t first) {
                   if (!keeps) return compute_losses(ctx, checked, logits, first, losses);
                   compute_dlogits(ctx, checked, logits, first, Tensor(), losses, logits);
                   dlogits = logits;
                 });
  const LossTotals totals = total_losses(ctx, checked, losses);
  return {record<LinearCrossEntropyNode>({x, weight}, totals.sum, x.value, weight.value, checked,
                                         chunk_rows, zero_rows, dlogits),
          totals.count};
}

Tensor linear_cross_entropy_rows(const Context& ctx, const Tensor& x, const Tensor& weight,
                                 const Tensor& targets, int64_t vocab_size, int32_t ignore_index,
                                 int64_t chunk_rows, int64_t zero_rows) {
  check_arguments(x, weight, chunk_rows, zero_rows);
  const Targets checked = check_targets(ctx, "linear_cross_entropy", targets, x.size(0),
                                        weight.size(0), vocab_size, ignore_index);
  if (chunk_rows == 0) chunk_rows = default_chunk_rows(ctx, weight.size(0), x.dtype());
  const Tensor losses = empty(ctx, {checked.rows()}, accumulator_dtype(x.dtype()));
  for_each_chunk(ctx, x, with_padding(ctx, weight, zero_rows), chunk_rows,
                 [&](const Tensor& logits, const Tensor&, int64_t first) {
                   compute_losses(ctx, checked, logits, first, losses);
                 });
  total_losses(ctx, checked, losses);  // looks at the targets
  return losses;
}

Loss linear_cross_entropy_composed(const Context& ctx, const Var& x, const Var& weight,
                                   const Tensor& targets, int64_t vocab_size,
                                   int32_t ignore_index) {
  const Var logits = linear(ctx, x, weight, Var());
  return cross_entropy(ctx, logits, targets, vocab_size, ignore_index);
}

}  // namespace xtrain
