#include "ops/qk_norm_rope/qk_norm_rope.h"

#include "core/copy.h"
#include "support/catch.h"
#include "support/counting_allocator.h"
#include "support/op_tests.h"

using namespace xtrain;

namespace {

constexpr QkNormRope kOptions{.heads = 2, .kv_heads = 1, .head_dim = 4};

Tensor ascending(const Context& ctx, const Shape& shape) {
  std::vector<float> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return from_host(ctx, values, shape);
}

}  // namespace

TEST_CASE("qk_norm_rope cases", "[ops]") {
  check_op_cases("qk_norm_rope");
}

TEST_CASE("qk_norm_rope copies the values and records one node", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var qkv = tape.leaf(ascending(ctx, {1, 2, 16}));
  const Var weight = tape.leaf(ascending(ctx, {4}));
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const Tensor positions = from_host(ctx, std::vector<int32_t>{3, 4}, {1, 2});
  const Var y = qk_norm_rope(ctx, qkv, weight, weight, kOptions, &table, positions);
  CHECK(tape.node_names() == std::vector<std::string>{"qk_norm_rope"});
  CHECK(to_host<float>(ctx, y.value.slice(2, 12, 4)) ==
        to_host<float>(ctx, qkv.value.slice(2, 12, 4)));
}

TEST_CASE("qk_norm_rope without norm keeps only table and positions", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var qkv = tape.leaf(ascending(ctx, {1, 2, 16}));
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const Tensor positions = zeros(ctx, {1, 2}, Dtype::i32);
  const Var y = qk_norm_rope(ctx, qkv, Var(), Var(), kOptions, &table, positions);
  CHECK(to_host<float>(ctx, y.value) == to_host<float>(ctx, qkv.value));  // position 0
  CHECK(tape.saved_bytes() == table.cos.nbytes() + table.sin.nbytes() + positions.nbytes());
}

TEST_CASE("qk_norm_rope rewrites a gradient that it holds alone", "[ops]") {
  Context ctx = cpu_context(1);
  const auto allocator = std::make_shared<CountingAllocator>();
  ctx.allocator = allocator;
  Tape tape(ctx);
  const Tensor value = ascending(ctx, {1, 2, 16}), weight = ascending(ctx, {4});
  const Tensor positions = zeros(ctx, {1, 2}, Dtype::i32);
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  Var y = tape.leaf(value);
  for (int i = 0; i < 5; ++i) {
    y = qk_norm_rope(ctx, y, weight, weight, kOptions, &table, positions);
  }
  const int64_t before = allocator->allocations();
  tape.backward(std::span(&y, 1), std::span(&value, 1));
  CHECK(allocator->allocations() - before == 1);  // the last node's: the caller holds its gradient
}

TEST_CASE("qk_norm_rope refuses what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor qkv = zeros(ctx, {1, 2, 16}, Dtype::f32);
  const Tensor weight = zeros(ctx, {4}, Dtype::f32);
  const Tensor positions = from_host(ctx, std::vector<int32_t>{0, 8}, {1, 2});
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const auto call = [&](const Var& x, const Var& q, const Var& k, const QkNormRope& options) {
    return qk_norm_rope(ctx, x, q, k, options, &table, positions);
  };
  const QkNormRope odd{.heads = 2, .kv_heads = 1, .head_dim = 5};
  CHECK_THROWS_WITH(call(qkv, weight, weight, kOptions),
                    "qk_norm_rope: positions must lie in [0, 8); got 8 at position 1");
  CHECK_THROWS_WITH(
      call(qkv, weight, Var(), kOptions),
      "qk_norm_rope: q_weight and k_weight must both be given or neither; got only q_weight");
  CHECK_THROWS_WITH(
      call(weight, weight, weight, kOptions),
      "qk_norm_rope: qkv must be [B, T, (H + 2 KV) D] with H 2, KV 1, D 4; got shape (4)");
  CHECK_THROWS_WITH(call(qkv, qkv, weight, kOptions),
                    "qk_norm_rope: q_weight must be f32 of shape (4); got f32 (1, 2, 16)");
  CHECK_THROWS_WITH(
      call(qkv, weight, weight, odd),
      "qk_norm_rope: heads, kv_heads and head_dim must be positive and head_dim even; got 2, 1 "
      "and 5");
}
