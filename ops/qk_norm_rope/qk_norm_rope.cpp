#include "ops/qk_norm_rope/qk_norm_rope.h"

#include "core/copy.h"
#include "ops/concat/concat.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_node.h"
#include "ops/optional_data.h"
#include "ops/qk_norm_rope/qk_norm_rope_kernels.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

constexpr const char* kName = "qk_norm_rope";

void check_weight(const char* what, const Tensor& weight, const QkNormRope& o, Dtype dtype) {
  if (!weight.defined()) return;
  const Shape shape{o.head_dim};
  check(weight.shape() == shape && weight.dtype() == dtype, kName, ": ", what, " must be ", dtype,
        " of shape ", shape, "; got ", weight.dtype(), " ", weight.shape());
}

void check_arguments(const Context& ctx, const Tensor& qk, const Tensor& q_weight,
                     const Tensor& k_weight, const QkNormRope& o, const RopeTable* table,
                     const Tensor& positions) {
  check(o.heads > 0 && o.kv_heads > 0 && o.head_dim > 0 && o.head_dim % 2 == 0, kName,
        ": heads, kv_heads and head_dim must be positive and head_dim even; got ", o.heads, ", ",
        o.kv_heads, " and ", o.head_dim);
  check(qk.defined() && qk.rank() == 3 && qk.size(2) == o.width(), kName,
        ": qk must be [B, T, (H + KV) D] with H ", o.heads, ", KV ", o.kv_heads, ", D ", o.head_dim,
        "; got shape ", qk.shape());
  check(q_weight.defined() == k_weight.defined(), kName,
        ": q_weight and k_weight must both be given or neither; got only ",
        q_weight.defined() ? "q_weight" : "k_weight");
  check(!q_weight.defined() || o.eps > 0.0, kName, ": eps must be positive; got ", o.eps);
  check_weight("q_weight", q_weight, o, qk.dtype());
  check_weight("k_weight", k_weight, o, qk.dtype());
  if (table) {
    check_rope(ctx, kName, *table, positions, qk.size(0), qk.size(1), o.head_dim, qk.dtype());
  }
}

// Whether x [B, T, C] can be read and written where it lies, with rows aligned as those of a tensor
// of its own. A GPU takes others element by element, and would add them up in another order.
bool has_even_rows(const Tensor& x) {
  constexpr int64_t kPackBytes = 16;
  const Shape rows{x.size(0) * x.size(1), x.size(2)};
  if (x.stride(-1) != 1 || !x.can_reshape(rows) || !x.is_aligned(kPackBytes)) return false;
  return x.is_contiguous() || x.reshape(rows).stride(0) * size_of(x.dtype()) % kPackBytes == 0;
}

// x [B, T, C] as its tokens [B T, C], whose elements are contiguous.
Tensor token_rows(const Context& ctx, const Tensor& x) {
  Tensor even = x;
  if (!has_even_rows(x)) {
    even = empty_like(ctx, x);
    copy(ctx, x, even);
  }
  return even.reshape({x.size(0) * x.size(1), x.size(2)});
}

class QkNormRopeNode final : public Node {  // qk, q_weight, k_weight -> y
 public:
  // rows, weights and rstd are undefined without norm, positions without rotation.
  QkNormRopeNode(const QkNormRope& options, const Tensor& rows, const Tensor& q_weight,
                 const Tensor& k_weight, const RopeTable& table, const Tensor& positions,
                 const Tensor& rstd)
      : options_(options),
        rows_(*this, rows),
        q_weight_(*this, q_weight),
        k_weight_(*this, k_weight),
        cos_(*this, table.cos),
        sin_(*this, table.sin),
        positions_(*this, positions),
        rstd_(*this, rstd) {}
  const char* name() const override { return kName; }

  void backward(Gradients& g) override {
    const Context& ctx = g.ctx();
    const Tensor dy = contiguous(ctx, g.take(0));
    if (!g.wanted(0)) return write_gradients(g, dy, Tensor());
    g.write_as(0, dy.dtype(), [&](Tensor dx, bool accumulate) {
      const bool in_place = !accumulate && has_even_rows(dx);
      const Tensor result = in_place ? dx : empty_like(ctx, dx);
      write_gradients(g, dy, token_rows(ctx, result));
      if (!in_place) accumulate ? add_into(ctx, result, dx) : copy(ctx, result, dx);
    });
  }

 private:
  // dx: the rows of the input's gradient, to be set; undefined when not wanted.
  void write_gradients(Gradients& g, const Tensor& dy, Tensor dx) const {
    const Context& ctx = g.ctx();
    dispatch(ctx, dy, kName, [&](auto device, auto scalar) {
      using T = decltype(scalar);
      using A = Accumulator<T>;
      const int64_t tokens = dy.size(0) * dy.size(1);
      const Shape blocks{qk_token_blocks(device, tokens), options_.head_dim};
      Tensor partial[2];  // of the gradients of q_weight and k_weight
      for (int i : {0, 1}) {
        if (g.wanted(1 + i)) partial[i] = empty(ctx, blocks, dtype_of<A>);
      }
      qk_norm_rope_backward(
          device,
          QkNormRopeBackward<T>{
              options_, tokens, data_or_null<T>(*rows_), rows_->defined() ? rows_->stride(0) : 0,
              data_or_null<T>(*q_weight_), data_or_null<T>(*k_weight_),
              token_angles<A>(*cos_, *sin_, *positions_), data_or_null<A>(*rstd_), dy.data<T>(),
              mutable_data_or_null<T>(dx), dx.defined() ? dx.stride(0) : 0,
              mutable_data_or_null<A>(partial[0]), mutable_data_or_null<A>(partial[1])});
      give_row_sums(g, 1, partial);
    });
  }

  QkNormRope options_;
  Saved rows_, q_weight_, k_weight_, cos_, sin_, positions_, rstd_;
};

// One group of heads [B, T, n D], normalised and turned.
Var heads_composed(const Context& ctx, const Var& x, int64_t heads, const Var& weight,
                   const QkNormRope& o, const RopeTable* table, const Tensor& positions) {
  Var y = split_heads(ctx, x, heads);
  if (weight.defined()) y = rms_norm(ctx, y, weight, o.eps);
  if (table) y = rope(ctx, y, positions, *table, o.pairing);
  return merge_heads(ctx, y);
}

}  // namespace

Var qk_norm_rope(const Context& ctx, const Var& qk, const Var& q_weight, const Var& k_weight,
                 const QkNormRope& options, const RopeTable* table, const Tensor& positions) {
  check_arguments(ctx, qk.value, q_weight.value, k_weight.value, options, table, positions);
  const bool normed = q_weight.defined();
  if (!normed && !table) return qk;
  const Tensor x = token_rows(ctx, qk.value);
  const Tensor qw = contiguous(ctx, q_weight.value), kw = contiguous(ctx, k_weight.value);
  // Without a table every token stands at position 0 of a table of one position.
  const RopeTable turns = table ? *table : rope_table(ctx, 1, options.head_dim, 1.0, x.dtype());
  const Tensor at = table ? contiguous(ctx, positions) : Tensor();
  const int64_t tokens = x.size(0);
  Tensor y = empty_like(ctx, qk.value), rstd;
  const Dtype statistics = accumulator_dtype(x.dtype());
  if (normed) rstd = empty(ctx, {tokens, options.heads + options.kv_heads}, statistics);
  dispatch(ctx, x, kName, [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    qk_norm_rope_forward(
        device, QkNormRopeForward<T>{options, tokens, x.data<T>(), x.stride(0), data_or_null<T>(qw),
                                     data_or_null<T>(kw), token_angles<A>(turns.cos, turns.sin, at),
                                     y.mutable_data<T>(), mutable_data_or_null<A>(rstd)});
  });
  return record<QkNormRopeNode>({qk, q_weight, k_weight}, y, options, normed ? x : Tensor(), qw, kw,
                                turns, at, rstd);
}

Var qk_norm_rope_composed(const Context& ctx, const Var& qk, const Var& q_weight,
                          const Var& k_weight, const QkNormRope& o, const RopeTable* table,
                          const Tensor& positions) {
  check_arguments(ctx, qk.value, q_weight.value, k_weight.value, o, table, positions);
  const std::vector<Var> parts = split(ctx, qk, 2, {o.heads * o.head_dim, o.kv_heads * o.head_dim});
  const Var q = heads_composed(ctx, parts[0], o.heads, q_weight, o, table, positions);
  const Var k = heads_composed(ctx, parts[1], o.kv_heads, k_weight, o, table, positions);
  return concat(ctx, {q, k}, 2);
}

}  // namespace xtrain
