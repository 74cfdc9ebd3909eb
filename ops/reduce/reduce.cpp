#include "ops/reduce/reduce.h"

#include <algorithm>
#include <numeric>

#include "core/copy.h"
#include "core/error.h"
#include "ops/reduce/reduce_kernels.h"

namespace xtrain {
namespace {

// x as [outer, length, inner], summed over length.
struct Middle {
  Tensor x;  // contiguous
  int64_t outer = 1, length = 1, inner = 1;
};

// The summed dimensions lie side by side in most calls; where they do not, x is copied with them
// last. Sizes of 1 change nothing and may lie anywhere.
Middle as_middle(const Context& ctx, const Tensor& x, const std::vector<bool>& summed) {
  int first = 0, last = -1;
  for (int i = 0; i < x.rank(); ++i) {
    if (!summed[i] || x.size(i) == 1) continue;
    if (last < 0) first = i;
    last = i;
  }
  bool side_by_side = true;
  for (int i = first; i <= last; ++i) side_by_side = side_by_side && (summed[i] || x.size(i) == 1);
  if (!side_by_side) {
    std::vector<int> order(x.rank());
    std::iota(order.begin(), order.end(), 0);
    const auto end_of_kept =
        std::stable_partition(order.begin(), order.end(), [&](int i) { return !summed[i]; });
    std::vector<bool> last_summed(x.rank(), true);
    std::fill_n(last_summed.begin(), end_of_kept - order.begin(), false);
    return as_middle(ctx, x.permute(order), last_summed);
  }
  Middle m;
  m.x = contiguous(ctx, x);
  for (int i = 0; i < x.rank(); ++i) {
    (i < first ? m.outer : i <= last ? m.length : m.inner) *= x.size(i);
  }
  return m;
}

// factor times the sum of x over the marked dimensions, which keep size 1.
Tensor sum_over(const Context& ctx, const Tensor& x, const std::vector<bool>& summed, Dtype dtype,
                double factor, const char* op) {
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    if (summed[i]) shape[i] = 1;
  }
  Tensor y = empty(ctx, shape, dtype);
  dispatch(ctx, x, op, [&](auto device, auto scalar) {
    using T = decltype(scalar);
    const Middle m = as_middle(ctx, x, summed);
    const auto run = [&](auto* out) {
      sum_middle(device, m.outer, m.length, m.inner, m.x.data<T>(), factor, out);
    };
    if (dtype == x.dtype()) {
      run(y.mutable_data<T>());
    } else if constexpr (std::is_same_v<T, float>) {
      run(y.mutable_data<BFloat16>());
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      run(y.mutable_data<float>());
    }
  });
  return y;
}

// dy, with the summed dimensions as size 1, is repeated along them.
class ReduceNode final : public Node {
 public:
  ReduceNode(const char* name, const Shape& x, const Shape& kept, double factor)
      : name_(name), x_(x), kept_(kept), factor_(factor) {}
  const char* name() const override { return name_; }

  void backward(Gradients& g) override {
    Tensor dy = g.take(0);
    if (factor_ != 1.0) dy = sum_to_shape(g.ctx(), dy, dy.shape(), dy.dtype(), factor_);
    g.give(0, dy.reshape(kept_).expand(x_));
  }

 private:
  const char* name_;
  Shape x_, kept_;
  double factor_;
};

std::vector<bool> marked(const Tensor& x, const std::vector<int>& dims, const char* op) {
  std::vector<bool> summed(x.rank(), dims.empty());
  for (int dim : dims) {
    const int i = normalize_dim(dim, x.rank());
    check(!summed[i], op, ": each dimension may be named once; got ", dim, " again for shape ",
          x.shape());
    summed[i] = true;
  }
  return summed;
}

Var reduce(const Context& ctx, const char* op, bool is_mean, const Var& x,
           const std::vector<int>& dims, bool keep_dims) {
  check(x.defined(), op, ": a tensor must be given; got an undefined one");
  const std::vector<bool> summed = marked(x.value, dims, op);
  int64_t count = 1;
  Shape shape;
  for (int i = 0; i < x.value.rank(); ++i) {
    if (summed[i]) count *= x.size(i);
    if (keep_dims || !summed[i]) shape.push_back(summed[i] ? 1 : x.size(i));
  }
  const double factor = is_mean ? 1.0 / static_cast<double>(count) : 1.0;  // 0 * infinity is NaN
  const Tensor y = sum_over(ctx, x.value, summed, x.dtype(), factor, op);
  return record<ReduceNode>({x}, y.reshape(shape), op, x.shape(), y.shape(), factor);
}

}  // namespace

Var sum(const Context& ctx, const Var& x, const std::vector<int>& dims, bool keep_dims) {
  return reduce(ctx, "sum", false, x, dims, keep_dims);
}

Var mean(const Context& ctx, const Var& x, const std::vector<int>& dims, bool keep_dims) {
  return reduce(ctx, "mean", true, x, dims, keep_dims);
}

Tensor sum_to_shape(const Context& ctx, const Tensor& x, const Shape& shape, Dtype dtype,
                    double factor) {
  const int lead = x.rank() - shape.rank();
  std::vector<bool> summed(x.rank());
  for (int i = 0; i < x.rank(); ++i)
    summed[i] = i < lead || (shape[i - lead] == 1 && x.size(i) != 1);
  return sum_over(ctx, x, summed, dtype, factor, "sum").reshape(shape);
}

}  // namespace xtrain
