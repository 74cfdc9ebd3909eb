#pragma once
// What the nodes that end or begin with a norm share: the norm of values, and the way back.

#include "autodiff/tape.h"
#include "ops/norm/norm.h"

namespace xtrain {

// What was computed, and contiguous operands.
struct NormResult {
  Tensor x;  // what was normalised: x or x + branch
  Tensor y;
  Tensor weight, bias;
  Tensor mean, rstd;  // of each row; mean of layer only
};

// Error unless they fit each other; `op` names the caller. The branch may be undefined.
void check_norm(const char* op, const Tensor& x, const Tensor& branch, const Tensor& weight,
                const Tensor& bias, NormKind kind, double eps);

// The norm of x, or of x + branch where a branch is defined, checked.
NormResult normalize(const Context& ctx, const char* op, const Tensor& x, const Tensor& branch,
                     const Tensor& weight, const Tensor& bias, NormKind kind, double eps);

// Gives inputs `first_input` and the one after it the sums over the rows of partial[0] and
// partial[1], which have one shape; undefined where not wanted.
void give_row_sums(Gradients& g, int first_input, const Tensor (&partial)[2]);

class NormBase : public Node {
 public:
  // biased_branch: what is added to x ends in a bias (Var::biased).
  NormBase(NormKind kind, const NormResult& r, bool biased_branch)
      : kind_(kind),
        biased_branch_(biased_branch),
        x_(*this, r.x),
        weight_(*this, r.weight),
        mean_(*this, r.mean),
        rstd_(*this, r.rstd) {}

 protected:
  // Where the norm's result is to be made again; y may be dy's memory.
  struct Rebuilt {
    Tensor bias, y;
  };

  // The gradient of what was normalised, and its column sums where the branch asks for them.
  struct SumGradient {
    Tensor dx, column_sums;
  };

  NormKind kind() const { return kind_; }
  const Shape& shape() const { return x_->shape(); }

  // dsum (or nothing) plus the gradient of what was normalised, undefined when not wanted. Gives
  // the gradients of weight and bias, which are inputs `weight_input` and the one after it.
  SumGradient through_norm(Gradients& g, const Tensor& dy, const Tensor& dsum, bool dx_wanted,
                           int weight_input, const Rebuilt& rebuilt = {}) const;

  // Of inputs 0 and 1, x and the branch.
  static void give_to_both(Gradients& g, SumGradient d);

 private:
  NormKind kind_;
  bool biased_branch_;
  Saved x_, weight_, mean_, rstd_;
};

}  // namespace xtrain
