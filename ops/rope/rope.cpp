#include "ops/rope/rope.h"

#include "core/check_indices.h"
#include "core/copy.h"
#include "ops/rope/rope_kernels.h"

namespace xtrain {
namespace {

// y = x [B, T, H, D] turned; y may be x when x is contiguous.
void rotate(const Context& ctx, const Tensor& x, const Tensor& positions, const RopeTable& table,
            RopePairing pairing, bool inverse, Tensor y) {
  dispatch(ctx, x, "rope", [&](auto device, auto scalar) {
    using T = decltype(scalar);
    using A = Accumulator<T>;
    rope_rotate(device, RopeRotation<T>{x.size(0), x.size(1), x.size(2), x.size(3), pairing,
                                        inverse, x.data<T>(), x.stride(0), x.stride(1), x.stride(2),
                                        token_angles<A>(table.cos, table.sin, positions),
                                        y.mutable_data<T>()});
  });
}

Tensor with_contiguous_heads(const Context& ctx, const Tensor& x) {
  return x.stride(-1) == 1 ? x : contiguous(ctx, x);
}

class RopeNode final : public Node {
 public:
  RopeNode(const Tensor& positions, const RopeTable& table, RopePairing pairing)
      : positions_(*this, positions),
        cos_(*this, table.cos),
        sin_(*this, table.sin),
        pairing_(pairing) {}
  const char* name() const override { return "rope"; }

  void backward(Gradients& g) override {
    const Tensor dy = with_contiguous_heads(g.ctx(), g.take(0));
    Tensor dx = reuse_or_empty(g.ctx(), dy);
    rotate(g.ctx(), dy, *positions_, {*cos_, *sin_}, pairing_, true, dx);
    g.give(0, std::move(dx));
  }

 private:
  Saved positions_, cos_, sin_;
  RopePairing pairing_;
};

}  // namespace

RopeTable rope_table(const Context& ctx, int64_t positions, int64_t head_dim, double theta,
                     Dtype dtype) {
  check(head_dim > 0 && head_dim % 2 == 0, "rope: head_dim must be even and positive; got ",
        head_dim);
  check(theta > 0.0, "rope: theta must be positive; got ", theta);
  const Shape shape{positions, head_dim / 2};
  RopeTable table{empty(ctx, shape, accumulator_dtype(dtype)),
                  empty(ctx, shape, accumulator_dtype(dtype))};
  dispatch(ctx, table.cos, "rope", [&](auto device, auto scalar) {
    using A = Accumulator<decltype(scalar)>;
    rope_angles(device, positions, head_dim, theta, table.cos.mutable_data<A>(),
                table.sin.mutable_data<A>());
  });
  return table;
}

void check_rope(const Context& ctx, const char* op, const RopeTable& table, const Tensor& positions,
                int64_t batch, int64_t time, int64_t head_dim, Dtype dtype) {
  check(table.cos.defined() && table.sin.defined() && positions.defined(), op,
        ": a table and positions must be given");
  check(table.head_dim() == head_dim, op, ": the table must be made for the heads' size ", head_dim,
        "; got one for ", table.head_dim());
  check(table.cos.dtype() == accumulator_dtype(dtype), op, ": the table must be ",
        accumulator_dtype(dtype), " for ", dtype, "; got ", table.cos.dtype());
  check(positions.shape() == Shape{batch, time} && positions.dtype() == Dtype::i32, op,
        ": positions must be i32 of shape ", Shape{batch, time}, "; got ", positions.dtype(), " ",
        positions.shape());
  if (table.is_checked) return;
  check_indices(ctx, op, "positions", contiguous(ctx, positions), table.positions());
}

Var rope(const Context& ctx, const Var& x, const Tensor& positions, const RopeTable& table,
         RopePairing pairing) {
  check(x.defined() && x.value.rank() == 4, "rope: x must be [B, T, H, D]; got shape ", x.shape());
  check_rope(ctx, "rope", table, positions, x.size(0), x.size(1), x.size(3), x.dtype());
  const Tensor at = contiguous(ctx, positions);
  Tensor y = empty_like(ctx, x.value);
  rotate(ctx, with_contiguous_heads(ctx, x.value), at, table, pairing, false, y);
  return record<RopeNode>({x}, y, at, table, pairing);
}

}  // namespace xtrain
