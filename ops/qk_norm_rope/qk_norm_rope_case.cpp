#include <algorithm>

#include "core/error.h"
#include "ops/op_case.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

constexpr int64_t kPositions = 50;

struct Example {
  int64_t batch, time;
  QkNormRope options;
  bool normed = true, turned = true;
  int64_t columns_behind = 0;  // of the packed tensor that qk is a slice of
};

using Function = Var (*)(const Context&, const Var&, const Var&, const Var&, const QkNormRope&,
                         const RopeTable*, const Tensor&);

OpCall call(const Example& e, Function function) {
  return [e, function](const Context& ctx, std::span<const Var> in) {
    const Var qk = e.columns_behind > 0 ? slice(ctx, in[0], 2, 0, e.options.width()) : in[0];
    const Var q_weight = e.normed ? in[2] : Var(), k_weight = e.normed ? in[3] : Var();
    if (!e.turned) {
      return std::vector<Var>{function(ctx, qk, q_weight, k_weight, e.options, nullptr, Tensor())};
    }
    const RopeTable table = rope_table(ctx, kPositions, e.options.head_dim, 10000.0, in[0].dtype());
    return std::vector<Var>{function(ctx, qk, q_weight, k_weight, e.options, &table, in[1].value)};
  };
}

OpCase example_case(const Example& e) {
  const QkNormRope& o = e.options;
  const Shape shape{e.batch, e.time, o.width() + e.columns_behind};
  OpCase c;
  c.op = "qk_norm_rope";
  c.variant = text(shape, ", H ", o.heads, ", KV ", o.kv_heads,
                   o.pairing == RopePairing::halves ? ", halves" : ", adjacent",
                   e.normed ? "" : ", no norm", e.turned ? "" : ", no rotation");
  if (e.columns_behind > 0) c.variant += text(", a slice before ", e.columns_behind, " columns");
  c.inputs = {{.name = "qk", .shape = shape},
              {.name = "positions",
               .shape = {e.batch, e.time},
               .fill = Fill::indices,
               .bound = kPositions}};
  if (e.normed) {
    c.inputs.push_back({.name = "q_weight", .shape = {o.head_dim}, .fill = Fill::nonzero});
    c.inputs.push_back({.name = "k_weight", .shape = {o.head_dim}, .fill = Fill::nonzero});
  }
  c.run = call(e, qk_norm_rope);
  c.twin = call(e, qk_norm_rope_composed);
  c.reduction = std::max<int64_t>(o.head_dim, e.batch * e.time * o.heads);
  return c;
}

}  // namespace

// Token counts on both sides of the CPU's blocks of 32; heads on both sides of the GPU's layouts,
// which divide a head of 64, 128 or 256 among lanes in packs, or take any other element by element.
std::vector<OpCase> qk_norm_rope_cases() {
  const QkNormRope grouped{.heads = 4, .kv_heads = 2, .head_dim = 6};
  QkNormRope adjacent = grouped;
  adjacent.pairing = RopePairing::adjacent;
  const QkNormRope single{.heads = 1, .kv_heads = 1, .head_dim = 8};
  std::vector<OpCase> cases;
  for (const bool normed : {true, false}) {
    for (const bool turned : {true, false}) {
      cases.push_back(example_case({2, 3, grouped, normed, turned}));
      cases.push_back(example_case({2, 3, adjacent, normed, turned}));
    }
  }
  for (int64_t time : {0, 1, 31, 32, 33, 70}) cases.push_back(example_case({1, time, single}));
  cases.push_back(example_case({0, 3, grouped}));
  cases.push_back(example_case({2, 2, {.heads = 2, .kv_heads = 1, .head_dim = 64}}));
  cases.push_back(example_case({1, 2, {.heads = 2, .kv_heads = 2, .head_dim = 34}}));
  cases.push_back(example_case({1, 3, {.heads = 2, .kv_heads = 1, .head_dim = 96}}));
  cases.push_back(example_case({1, 2, {.heads = 1, .kv_heads = 1, .head_dim = 256}}));
  // Slices whose rows begin at multiples of 16 bytes, and not.
  for (int64_t columns : {64, 1}) {
    for (const bool normed : {true, false}) {
      cases.push_back(
          example_case({2, 5, {.heads = 2, .kv_heads = 1, .head_dim = 64}, normed, true, columns}));
    }
  }
  QkNormRope wide{.heads = 3, .kv_heads = 1, .head_dim = 128};
  cases.push_back(example_case({2, 1, wide}));
  wide.pairing = RopePairing::adjacent;
  cases.push_back(example_case({2, 1, wide}));
  return cases;
}

}  // namespace xtrain
