#include "ops/view/view.h"

#include <numeric>

#include "core/copy.h"
#include "core/error.h"

namespace xtrain {
namespace {

Var record_view(const Var& x, const View& view, Tensor value, const char* name) {
  return x.tape ? x.tape->add_view(x, view, std::move(value), name) : Var(std::move(value));
}

}  // namespace

Var reshape(const Context& ctx, const Var& x, const Shape& shape) {
  const bool copies = numel_of(shape) == x.value.numel() && !x.value.can_reshape(shape);
  const Tensor source = copies ? contiguous(ctx, x.value) : x.value;
  return record_view(x, View::reshaped(shape), source.reshape(shape), "reshape");
}

Var permute(const Context&, const Var& x, const std::vector<int>& order) {
  std::vector<int> positive;
  for (int dim : order) positive.push_back(normalize_dim(dim, x.value.rank()));
  return record_view(x, View::permuted(positive), x.value.permute(positive), "permute");
}

Var transpose(const Context& ctx, const Var& x, int dim0, int dim1) {
  std::vector<int> order(x.value.rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[normalize_dim(dim0, x.value.rank())], order[normalize_dim(dim1, x.value.rank())]);
  return permute(ctx, x, order);
}

Var slice(const Context&, const Var& x, int dim, int64_t start, int64_t length) {
  const int positive = normalize_dim(dim, x.value.rank());
  return record_view(x, View::sliced(positive, start, length),
                     x.value.slice(positive, start, length), "slice");
}

std::vector<Var> split(const Context& ctx, const Var& x, int dim,
                       const std::vector<int64_t>& lengths) {
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  check(sum == x.size(dim), "split: lengths must add up to size ", x.size(dim), " of dimension ",
        dim, " of ", x.shape(), "; got ", sum);
  std::vector<Var> parts;
  int64_t start = 0;
  for (int64_t length : lengths) {
    parts.push_back(slice(ctx, x, dim, start, length));
    start += length;
  }
  return parts;
}

// Where the values lie is nothing to the gradient, which has its place in that of x all the same.
Var compact(const Context& ctx, const Var& x) {
  return record_view(x, View::reshaped(x.shape()), contiguous(ctx, x.value).reshape(x.shape()),
                     "compact");
}

Var split_heads(const Context& ctx, const Var& x, int64_t heads) {
  check(x.value.rank() == 3 && heads > 0 && x.size(2) % heads == 0, "split_heads: ", heads,
        " heads must divide the width of [B, T, C]; got ", x.shape());
  return reshape(ctx, x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

Var merge_heads(const Context& ctx, const Var& x) {
  check(x.value.rank() == 4, "merge_heads: [B, T, H, D] must be given; got ", x.shape());
  return reshape(ctx, x, {x.size(0), x.size(1), x.size(2) * x.size(3)});
}

}  // namespace xtrain
