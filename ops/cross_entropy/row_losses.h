#pragma once
// Cross entropy of a range of rows: what cross_entropy does with all rows at once and
// linear_cross_entropy with one chunk after the other.

#include "core/check_indices_kernels.h"
#include "core/tensor.h"

namespace xtrain {

// One target a row, [N] i32, contiguous.
struct Targets {
  Tensor ids;
  IndexRule rule;  // rule.limit classes; the columns of the logits beyond are padding

  int64_t rows() const { return ids.numel(); }
};

// Error, naming the op, when there is not one target for each of `rows` rows, or vocab_size is not
// in [0, columns]; 0 stands for columns. The targets themselves are looked at by total_losses.
Targets check_targets(const Context& ctx, const char* op, const Tensor& targets, int64_t rows,
                      int64_t columns, int64_t vocab_size, int32_t ignore_index);

// Sets losses [N], in the accumulator's dtype, of the rows from `first` on, as many as
// logits [n, columns] has.
void compute_losses(const Context& ctx, const Targets& targets, const Tensor& logits, int64_t first,
                    Tensor losses);

// Sets the same losses, and dlogits (which may be logits) of those rows, given the gradient of the
// sum of all losses; an undefined one stands for 1.
void compute_dlogits(const Context& ctx, const Targets& targets, const Tensor& logits,
                     int64_t first, const Tensor& dsum, Tensor losses, Tensor dlogits);

struct LossTotals {
  Tensor sum;    // [1], of all losses
  Tensor count;  // [1] i64: the targets that are not ignored
};

// Error for an illegal target, as check_indices has it.
LossTotals total_losses(const Context& ctx, const Targets& targets, const Tensor& losses);

// dlogits computed for dsum 1 become those for the given one: dlogits *= dsum.
void scale_dlogits(const Context& ctx, const Tensor& dsum, Tensor dlogits);

}  // namespace xtrain
