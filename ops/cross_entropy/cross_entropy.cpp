#include "ops/cross_entropy/cross_entropy.h"

#include "core/copy.h"
#include "core/error.h"
#include "ops/cross_entropy/row_losses.h"

namespace xtrain {
namespace {

class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(const Tensor& logits, const Targets& targets, const Tensor& statistics)
      : targets_(targets),
        logits_(*this, logits),
        ids_(*this, targets.ids),
        statistics_(*this, statistics) {}
  const char* name() const override { return "cross_entropy"; }

  void backward(Gradients& g) override {
    Tensor dlogits = empty_like(g.ctx(), *logits_);
    compute_dlogits(g.ctx(), targets_, *logits_, 0, *statistics_, g.take(0), dlogits);
    g.give(0, std::move(dlogits));
  }

 private:
  Targets targets_;
  Saved logits_, ids_, statistics_;
};

}  // namespace

Loss cross_entropy(const Context& ctx, const Var& logits, const Tensor& targets, int64_t vocab_size,
                   int32_t ignore_index) {
  check(logits.value.rank() == 2, "cross_entropy: logits must be [N, V]; got ", logits.shape());
  const Targets checked = check_targets(ctx, "cross_entropy", targets, logits.size(0),
                                        logits.size(1), vocab_size, ignore_index);
  const Tensor rows = contiguous(ctx, logits.value);
  RowLosses result = empty_row_losses(ctx, checked.rows(), rows.dtype());
  compute_row_losses(ctx, checked, rows, 0, result);
  Tensor sum = sum_of_losses(ctx, result.losses);
  return {record<CrossEntropyNode>({logits}, sum, rows, checked, result.statistics), checked.count};
}

}  // namespace xtrain
