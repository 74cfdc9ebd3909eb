#include "ops/concat/concat.h"

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

class ConcatNode final : public Node {
 public:
  ConcatNode(std::vector<int64_t> lengths, int dim) : lengths_(std::move(lengths)), dim_(dim) {}
  const char* name() const override { return "concat"; }

  void backward(Gradients& g) override {
    const Tensor dy = g.take(0);
    int64_t start = 0;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      g.give(static_cast<int>(i), dy.slice(dim_, start, lengths_[i]));
      start += lengths_[i];
    }
  }

 private:
  std::vector<int64_t> lengths_;
  int dim_;
};

void check_part(const Context& ctx, const Var& part, const Var& first, int dim) {
  check(part.defined(), "concat: every part must be given; got an undefined one");
  check(part.dtype() == first.dtype(), "concat: dtypes must agree; got ", first.dtype(), " and ",
        part.dtype(), "; cast one of them");
  check(part.value.device() == ctx.device, "concat: parts must lie on the context's device ",
        ctx.device, "; got ", part.value.device());
  bool fits = part.value.rank() == first.value.rank();
  for (int i = 0; fits && i < part.value.rank(); ++i)
    fits = i == dim || part.size(i) == first.size(i);
  check(fits, "concat: sizes must agree except in dimension ", dim, "; got ", first.shape(),
        " and ", part.shape());
}

}  // namespace

Var concat(const Context& ctx, const std::vector<Var>& parts, int dim) {
  check(!parts.empty() && parts[0].defined(), "concat: at least one part must be given; got none");
  const Var& first = parts[0];
  const int along = normalize_dim(dim, first.value.rank());
  Shape shape = first.shape();
  shape[along] = 0;
  std::vector<int64_t> lengths;
  for (const Var& part : parts) {
    check_part(ctx, part, first, along);
    lengths.push_back(part.size(along));
    shape[along] += lengths.back();
  }
  const Tensor y = empty(ctx, shape, first.dtype());
  int64_t start = 0;
  for (const Var& part : parts) {
    copy(ctx, part.value, y.slice(along, start, part.size(along)));
    start += part.size(along);
  }
  return record_outputs<ConcatNode>(parts, {y}, std::move(lengths), along)[0];
}

}  // namespace xtrain
