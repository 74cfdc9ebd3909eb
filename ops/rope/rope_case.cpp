#include "core/error.h"
#include "ops/op_case.h"
#include "ops/rope/rope.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

constexpr int64_t kPositions = 50;
constexpr double kTheta = 10000.0;

CaseInput positions_of(int64_t batch, int64_t time) {
  return {.name = "positions", .shape = {batch, time}, .fill = Fill::indices, .bound = kPositions};
}

OpCase rope_case(const Shape& shape, RopePairing pairing) {
  OpCase c;
  c.op = "rope";
  c.variant = text(shape, pairing == RopePairing::halves ? ", halves" : ", adjacent");
  c.inputs = {{.name = "x", .shape = shape}, positions_of(shape[0], shape[1])};
  c.run = [pairing](const Context& ctx, std::span<const Var> in) {
    const RopeTable table = rope_table(ctx, kPositions, in[0].size(3), kTheta, in[0].dtype());
    return std::vector<Var>{rope(ctx, in[0], in[1].value, table, pairing)};
  };
  return c;
}

// Two slices of a packed input, of two heads and one, read where they lie.
OpCase packed_case(int64_t head_dim) {
  const Shape packed{2, 3, 5 * head_dim};
  OpCase c;
  c.op = "rope";
  c.variant = text("slices of ", packed);
  c.inputs = {{.name = "qkv", .shape = packed}, positions_of(2, 3)};
  c.run = [head_dim](const Context& ctx, std::span<const Var> in) {
    const RopeTable table = rope_table(ctx, kPositions, head_dim, kTheta, in[0].dtype());
    const std::vector<Var> parts = split(ctx, in[0], 2, {2 * head_dim, head_dim, 2 * head_dim});
    std::vector<Var> outputs;
    for (int i : {0, 1}) {
      const Var heads = split_heads(ctx, parts[i], parts[i].size(2) / head_dim);
      outputs.push_back(rope(ctx, heads, in[1].value, table, RopePairing::halves));
    }
    outputs.push_back(parts[2]);
    return outputs;
  };
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : {Shape{2, 3, 3, 8}, Shape{1, 1, 1, 2}, Shape{3, 5, 2, 34},
                             Shape{1, 9, 8, 128}, Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4}}) {
    for (RopePairing pairing : {RopePairing::halves, RopePairing::adjacent}) {
      cases.push_back(rope_case(shape, pairing));
    }
  }
  for (int64_t head_dim : {8, 16}) cases.push_back(packed_case(head_dim));
  return cases;
}

}  // namespace xtrain
