#include "ops/embedding/embedding.h"

#include "core/check_indices.h"
#include "core/copy.h"
#include "core/error.h"
#include "ops/embedding/embedding_kernels.h"

namespace xtrain {
namespace {

class EmbeddingNode final : public Node {
 public:
  explicit EmbeddingNode(const Tensor& ids) : ids_(*this, ids) {}
  const char* name() const override { return "embedding"; }

  void backward(Gradients& g) override {
    const Tensor dy = contiguous(g.ctx(), g.take(0));
    g.write_as(0, accumulator_dtype(dy.dtype()), [&](Tensor dweight, bool accumulate) {
      if (!accumulate) fill(g.ctx(), dweight, 0.0);
      Tensor sums = contiguous(g.ctx(), dweight);
      dispatch(g.ctx(), dy, name(), [&](auto device, auto scalar) {
        using T = decltype(scalar);
        scatter_add_rows(device, ids_->numel(), sums.size(0), dy.size(-1), ids_->data<int32_t>(),
                         dy.data<T>(), sums.mutable_data<Accumulator<T>>());
      });
      if (!sums.shares_storage(dweight)) copy(g.ctx(), sums, dweight);
    });
  }

 private:
  Saved ids_;
};

}  // namespace

Var embedding(const Context& ctx, const Var& weight, const Tensor& ids) {
  check(weight.value.rank() == 2, "embedding: weight must be [V, C]; got ", weight.shape());
  check(ids.dtype() == Dtype::i32, "embedding: ids must be i32; got ", ids.dtype());
  const Tensor table = contiguous(ctx, weight.value), index = contiguous(ctx, ids);
  const int64_t rows = table.size(0), columns = table.size(1), n = index.numel();
  Shape shape = ids.shape();
  shape.push_back(columns);
  Tensor y = empty(ctx, shape, table.dtype());
  check_indices(ctx, "embedding", "ids", index, rows);
  dispatch(ctx, table, "embedding", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    gather_rows(device, n, rows, columns, index.data<int32_t>(), table.data<T>(),
                y.mutable_data<T>());
  });
  return record<EmbeddingNode>({weight}, y, index);
}

}  // namespace xtrain
