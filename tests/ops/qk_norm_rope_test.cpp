#include "ops/qk_norm_rope/qk_norm_rope.h"

#include "core/copy.h"
#include "ops/view/view.h"
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

TEST_CASE("qk_norm_rope reads a part of the projection and records one node", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var qk = slice(ctx, tape.leaf(ascending(ctx, {1, 2, 16})), 2, 0, 12);
  const Var weight = tape.leaf(ascending(ctx, {4}));
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const Tensor positions = from_host(ctx, std::vector<int32_t>{3, 4}, {1, 2});
  const Var y = qk_norm_rope(ctx, qk, weight, weight, kOptions, &table, positions);
  CHECK(tape.node_names() == std::vector<std::string>{"slice", "qk_norm_rope"});
  CHECK(y.value.is_contiguous());
  const Var alone = contiguous(ctx, qk.value);
  const Var expected =
      qk_norm_rope(ctx, alone, weight.value, weight.value, kOptions, &table, positions);
  CHECK(to_host<float>(ctx, y.value) == to_host<float>(ctx, expected.value));
}

TEST_CASE("qk_norm_rope without norm keeps only table and positions", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var qk = tape.leaf(ascending(ctx, {1, 2, 12}));
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const Tensor positions = zeros(ctx, {1, 2}, Dtype::i32);
  const Var y = qk_norm_rope(ctx, qk, Var(), Var(), kOptions, &table, positions);
  CHECK(to_host<float>(ctx, y.value) == to_host<float>(ctx, qk.value));  // position 0
  CHECK(tape.saved_bytes() == table.cos.nbytes() + table.sin.nbytes() + positions.nbytes());
}

TEST_CASE("qk_norm_rope writes its gradient into the projection's, beside the values'", "[ops]") {
  Context ctx = cpu_context(1);
  const auto allocator = std::make_shared<CountingAllocator>();
  ctx.allocator = allocator;
  const Tensor positions = from_host(ctx, std::vector<int32_t>{3, 4}, {1, 2});
  const Tensor weight = ascending(ctx, {4}), dy = ascending(ctx, {1, 2, 12});
  const Tensor dv = ascending(ctx, {1, 2, 4});
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  for (const bool normed : {true, false}) {
    const Var w = normed ? Var(weight) : Var();
    Tape tape(ctx);
    const Var packed = tape.leaf(ascending(ctx, {1, 2, 16}));
    const std::vector<Var> parts = split(ctx, packed, 2, {12, 4});
    const Var outputs[] = {qk_norm_rope(ctx, parts[0], w, w, kOptions, &table, positions),
                           parts[1]};
    const Tensor gradients[] = {dy, dv};
    const int64_t before = allocator->allocations();
    tape.backward(outputs, gradients);
    CHECK(allocator->allocations() - before == 1);

    Tape other(ctx);
    const Var alone = other.leaf(contiguous(ctx, parts[0].value));
    const Var y = qk_norm_rope(ctx, alone, w, w, kOptions, &table, positions);
    other.backward(std::span(&y, 1), std::span(&dy, 1));
    const Tensor dpacked = tape.grad(packed);
    CHECK(to_host<float>(ctx, dpacked.slice(2, 0, 12)) == to_host<float>(ctx, other.grad(alone)));
    CHECK(to_host<float>(ctx, dpacked.slice(2, 12, 4)) == to_host<float>(ctx, dv));
  }
}

TEST_CASE("qk_norm_rope adds to a gradient that is there", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor positions = from_host(ctx, std::vector<int32_t>{3, 4}, {1, 2});
  const Tensor weight = ascending(ctx, {4}), dy = ascending(ctx, {1, 2, 12});
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const auto gradient = [&](int uses) {
    Tape tape(ctx);
    const Var packed = tape.leaf(ascending(ctx, {1, 2, 16}));
    const Var qk = slice(ctx, packed, 2, 0, 12);
    std::vector<Var> outputs;
    for (int i = 0; i < uses; ++i) {
      outputs.push_back(qk_norm_rope(ctx, qk, weight, weight, kOptions, &table, positions));
    }
    tape.backward(outputs, std::vector<Tensor>(uses, dy));
    return to_host<float>(ctx, tape.grad(packed));
  };
  std::vector<float> expected = gradient(1);
  for (float& x : expected) x *= 2;
  CHECK(gradient(2) == expected);
}

TEST_CASE("qk_norm_rope refuses what does not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor qk = zeros(ctx, {1, 2, 12}, Dtype::f32);
  const Tensor weight = zeros(ctx, {4}, Dtype::f32);
  const Tensor positions = from_host(ctx, std::vector<int32_t>{0, 8}, {1, 2});
  const RopeTable table = rope_table(ctx, 8, 4, 10000.0, Dtype::f32);
  const auto call = [&](const Var& x, const Var& q, const Var& k, const QkNormRope& options) {
    return qk_norm_rope(ctx, x, q, k, options, &table, positions);
  };
  const QkNormRope odd{.heads = 2, .kv_heads = 1, .head_dim = 5};
  CHECK_THROWS_WITH(call(qk, weight, weight, kOptions),
                    "qk_norm_rope: positions must lie in [0, 8); got 8 at position 1");
  CHECK_THROWS_WITH(
      call(qk, weight, Var(), kOptions),
      "qk_norm_rope: q_weight and k_weight must both be given or neither; got only q_weight");
  CHECK_THROWS_WITH(
      call(weight, weight, weight, kOptions),
      "qk_norm_rope: qk must be [B, T, (H + KV) D] with H 2, KV 1, D 4; got shape (4)");
  CHECK_THROWS_WITH(call(qk, qk, weight, kOptions),
                    "qk_norm_rope: q_weight must be f32 of shape (4); got f32 (1, 2, 12)");
  CHECK_THROWS_WITH(
      call(qk, weight, weight, odd),
      "qk_norm_rope: heads, kv_heads and head_dim must be positive and head_dim even; got 2, 1 "
      "and 5");
}
