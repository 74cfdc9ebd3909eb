#include <algorithm>

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/probabilities.h"
#include "ops/op_case.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

// One call of attention; by default causal over one sequence length. Empty lists: base Tk - Tq and
// key length Tk for all sequences, no documents.
struct AttentionExample {
  std::string variant;
  int64_t batch = 2, queries = 5, keys = 5, heads = 2, kv_heads = 2, head_dim = 8;
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> position_base = {}, key_length = {}, document_start = {};
  double scale = 0.0, dropout = 0.0;
};

AttentionOptions options_of(const Context& ctx, const AttentionExample& e) {
  AttentionOptions options;
  options.scale = e.scale;
  options.dropout = Dropout{.p = e.dropout, .site = 3};
  options.mask = causal_mask(ctx, e.batch, e.queries, e.keys);
  options.mask.causal = e.causal;
  options.mask.window = e.window;
  if (!e.position_base.empty()) {
    options.mask.position_base = from_host(ctx, e.position_base, {e.batch});
  }
  if (!e.key_length.empty()) options.mask.key_length = from_host(ctx, e.key_length, {e.batch});
  if (!e.document_start.empty()) {
    options.mask.document_start = from_host(ctx, e.document_start, {e.batch, e.queries});
  }
  return options;
}

OpCall attention_call(const AttentionExample& e, AttentionKind kind) {
  return [e, kind](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{attention(ctx, in[0], in[1], in[2], options_of(ctx, e), kind)};
  };
}

OpCase base_case(const AttentionExample& e) {
  OpCase c;
  c.variant = e.variant;
  c.reduction = std::max({e.head_dim, e.keys, e.queries * e.heads / e.kv_heads, int64_t{1}});
  // The softmax of one key is 1 whatever its score: dp - rowsum(dp p) is nothing.
  c.cancelling = e.keys == 1 ? 1.0 : 0.0;
  c.dropout = e.dropout > 0.0;
  return c;
}

OpCase separate_case(const AttentionExample& e, AttentionKind kind) {
  OpCase c = base_case(e);
  const Shape key_shape{e.batch, e.keys, e.kv_heads, e.head_dim};
  c.inputs = {{.name = "q", .shape = {e.batch, e.queries, e.heads, e.head_dim}},
              {.name = "k", .shape = key_shape},
              {.name = "v", .shape = key_shape}};
  c.op = kind == AttentionKind::flash ? "attention_flash" : "attention_composed";
  c.run = attention_call(e, kind);
  if (kind == AttentionKind::flash) c.twin = attention_call(e, AttentionKind::composed);
  return c;
}

// q, k and v as regions of one projection.
OpCase packed_case(const AttentionExample& e) {
  OpCase c = base_case(e);
  c.op = "attention_flash";
  c.inputs = {
      {.name = "qkv", .shape = {e.batch, e.queries, (e.heads + 2 * e.kv_heads) * e.head_dim}}};
  const auto call = [e](AttentionKind kind) {
    return [e, kind](const Context& ctx, std::span<const Var> in) {
      const int64_t q_width = e.heads * e.head_dim, kv_width = e.kv_heads * e.head_dim;
      const std::vector<Var> parts = split(ctx, in[0], 2, {q_width, kv_width, kv_width});
      const Var q = split_heads(ctx, parts[0], e.heads);
      const Var k = split_heads(ctx, parts[1], e.kv_heads);
      const Var v = split_heads(ctx, parts[2], e.kv_heads);
      return std::vector<Var>{attention(ctx, q, k, v, options_of(ctx, e), kind)};
    };
  };
  c.run = call(AttentionKind::flash);
  c.twin = call(AttentionKind::composed);
  return c;
}

// One value as q, k and v.
OpCase same_value_case(const AttentionExample& e) {
  OpCase c = base_case(e);
  c.op = "attention_flash";
  c.inputs = {{.name = "x", .shape = {e.batch, e.queries, e.heads, e.head_dim}}};
  const auto call = [e](AttentionKind kind) {
    return [e, kind](const Context& ctx, std::span<const Var> in) {
      return std::vector<Var>{attention(ctx, in[0], in[0], in[0], options_of(ctx, e), kind)};
    };
  };
  c.run = call(AttentionKind::flash);
  c.twin = call(AttentionKind::composed);
  return c;
}

OpCase masked_softmax_case() {
  OpCase c;
  c.op = "masked_softmax";
  c.variant = "a window and a blocked row";
  c.inputs = {{.name = "s", .shape = {2, 3, 4, 5}}};
  c.reduction = 5;
  c.run = [](const Context& ctx, std::span<const Var> in) {
    AttentionMask mask = causal_mask(ctx, 2, 4, 5);
    mask.window = 3;
    mask.document_start = from_host(ctx, std::vector<int32_t>{0, 0, 3, 9, 2, 2, 2, 2}, {2, 4});
    return std::vector<Var>{masked_softmax(ctx, in[0], 0.7, mask)};
  };
  return c;
}

std::vector<AttentionExample> mask_examples() {
  return {
      {.variant = "queries after cached keys", .queries = 3, .keys = 7},
      {.variant = "caches of different length",
       .queries = 2,
       .keys = 9,
       .position_base = {1, 5},
       .key_length = {3, 7}},
      {.variant = "window", .queries = 9, .keys = 9, .window = 3},
      {.variant = "window without causal", .queries = 6, .keys = 6, .causal = false, .window = 2},
      {.variant = "documents",
       .queries = 6,
       .keys = 6,
       .document_start = {0, 0, 2, 2, 2, 5, 0, 1, 1, 1, 4, 4}},
      {.variant = "padding", .queries = 4, .keys = 7, .causal = false, .key_length = {3, 6}},
      {.variant = "blocked rows and a sequence without keys",
       .batch = 3,
       .queries = 4,
       .keys = 4,
       .key_length = {4, 0, 3},
       .document_start = {0, 4, 0, 1, 0, 0, 0, 0, 7, 0, 0, 3}},
      {.variant = "more queries than keys", .queries = 6, .keys = 3},
      {.variant = "window over tiles",
       .batch = 1,
       .queries = 150,
       .keys = 150,
       .kv_heads = 1,
       .head_dim = 3,
       .window = 40},
  };
}

std::vector<AttentionExample> size_examples() {
  return {
      {.variant = "one head to one"},
      {.variant = "grouped heads", .heads = 4},
      {.variant = "one key head", .heads = 3, .kv_heads = 1, .head_dim = 1},
      {.variant = "one position", .queries = 1, .keys = 1},
      {.variant = "head_dim 32", .batch = 1, .queries = 17, .keys = 17, .head_dim = 32},
      {.variant = "head_dim 80", .batch = 1, .queries = 3, .keys = 3, .head_dim = 80},
      {.variant = "a tile less one", .batch = 1, .queries = 63, .keys = 63, .head_dim = 4},
      {.variant = "a tile", .batch = 1, .queries = 64, .keys = 64, .head_dim = 4},
      {.variant = "a tile and one", .batch = 1, .queries = 65, .keys = 65, .head_dim = 4},
      {.variant = "two tiles and one, all visible",
       .batch = 1,
       .queries = 129,
       .keys = 129,
       .heads = 1,
       .kv_heads = 1,
       .head_dim = 17,
       .causal = false},
      {.variant = "a negative scale", .scale = -0.7},
      {.variant = "a negative scale, head_dim 32",
       .batch = 1,
       .queries = 17,
       .keys = 17,
       .head_dim = 32,
       .scale = -0.3},
      {.variant = "no sequences", .batch = 0},
      {.variant = "no queries", .queries = 0},
      {.variant = "no keys", .keys = 0},
      {.variant = "dropout", .queries = 9, .keys = 9, .kv_heads = 1, .dropout = 0.3},
      {.variant = "dropout over tiles",
       .batch = 1,
       .queries = 70,
       .keys = 83,
       .head_dim = 3,
       .window = 30,
       .dropout = 0.5},
  };
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (const AttentionExample& e : size_examples()) {
    cases.push_back(separate_case(e, AttentionKind::flash));
  }
  for (const AttentionExample& e : mask_examples()) {
    cases.push_back(separate_case(e, AttentionKind::flash));
  }
  cases.push_back(packed_case({.variant = "packed projection", .heads = 4}));
  cases.push_back(same_value_case({.variant = "one value as q, k and v"}));
  for (const AttentionExample& e :
       {AttentionExample{.variant = "grouped heads", .heads = 4},
        AttentionExample{.variant = "dropout and a window", .window = 2, .dropout = 0.3}}) {
    cases.push_back(separate_case(e, AttentionKind::composed));
  }
  cases.push_back(masked_softmax_case());
  return cases;
}

}  // namespace xtrain
