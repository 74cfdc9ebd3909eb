#include "ops/cross_entropy/cross_entropy.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/cross_entropy/row_losses.h"

namespace xtrain {
namespace {

class CrossEntropyNode final : public Node {
 public:
  explicit CrossEntropyNode(const Tensor& dlogits) : dlogits_(*this, dlogits) {}
  const char* name() const override { return "cross_entropy"; }

  void backward(Gradients& g) override {
    scale_dlogits(g.ctx(), g.take(0), *dlogits_);
    g.give(0, *dlogits_);
  }

 private:
  Saved dlogits_;
};

}  // namespace

Loss cross_entropy(const Context& ctx, const Var& logits, const Tensor& targets, int64_t vocab_size,
                   int32_t ignore_index) {
  check(logits.value.rank() == 2, "cross_entropy: logits must be [N, V]; got ", logits.shape());
  const Targets checked = check_targets(ctx, "cross_entropy", targets, logits.size(0),
                                        logits.size(1), vocab_size, ignore_index);
  const Tensor rows = contiguous(ctx, logits.value);
  Tensor losses = empty(ctx, {checked.rows()}, accumulator_dtype(rows.dtype()));
  Tensor dlogits;
  if (logits.tape) {
    dlogits = empty_like(ctx, rows);
    compute_dlogits(ctx, checked, rows, 0, Tensor(), losses, dlogits);
  } else {
    compute_losses(ctx, checked, rows, 0, losses);
  }
  const LossTotals totals = total_losses(ctx, checked, losses);
  return {record<CrossEntropyNode>({logits}, totals.sum, dlogits), totals.count};
}

}  // namespace xtrain
