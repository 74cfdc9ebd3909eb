#include <algorithm>

#include "core/error.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

struct Sizes {
  int64_t rows, width, columns;
  int64_t vocab_size = 0, chunk_rows = 0;
};

OpCase linear_cross_entropy_case(const Sizes& s) {
  OpCase c;
  c.op = "linear_cross_entropy";
  c.variant = text("x (", s.rows, ", ", s.width, "), weight (", s.columns, ", ", s.width, ")");
  if (s.vocab_size > 0) c.variant += text(", ", s.vocab_size, " classes");
  if (s.chunk_rows > 0) c.variant += text(", chunks of ", s.chunk_rows);
  c.inputs = {{.name = "x", .shape = {s.rows, s.width}},
              {.name = "weight", .shape = {s.columns, s.width}},
              {.name = "targets",
               .shape = {s.rows},
               .fill = Fill::indices,
               .bound = s.vocab_size == 0 ? s.columns : s.vocab_size}};
  c.reduction = std::max({int64_t{1}, s.rows, s.width, s.columns});
  c.run = [s](const Context& ctx, std::span<const Var> in) {
    const Loss loss = linear_cross_entropy(ctx, in[0], in[1], in[2].value, s.vocab_size,
                                           kIgnoreIndex, s.chunk_rows);
    return std::vector<Var>{loss.sum, loss.count};
  };
  c.twin = [s](const Context& ctx, std::span<const Var> in) {
    const Loss loss = linear_cross_entropy_composed(ctx, in[0], in[1], in[2].value, s.vocab_size);
    return std::vector<Var>{loss.sum, loss.count};
  };
  return c;
}

// Every second target does not count.
OpCase with_ignored_targets(OpCase c) {
  c.variant += ", some targets ignored";
  CaseInput& targets = c.inputs[2];
  targets.fill = Fill::given;
  targets.dtype = Dtype::i32;
  for (int64_t i = 0; i < numel_of(targets.shape); ++i) {
    targets.values.push_back(i % 2 == 0 ? static_cast<double>(i % targets.bound) : kIgnoreIndex);
  }
  return c;
}

}  // namespace

std::vector<OpCase> linear_cross_entropy_cases() {
  std::vector<OpCase> cases;
  for (const Sizes& s : std::vector<Sizes>{
           {1, 1, 1},
           {5, 3, 7},
           {0, 3, 7},
           {3, 4, 65},
           {5, 3, 16, 11},   // padded classes
           {7, 3, 5, 0, 8},  // chunks above, at and below the number of rows
           {7, 3, 5, 0, 7},
           {7, 3, 5, 0, 6},
           {9, 4, 33, 30, 2},
       }) {
    cases.push_back(linear_cross_entropy_case(s));
  }
  cases.push_back(with_ignored_targets(linear_cross_entropy_case({7, 3, 5, 0, 3})));
  return cases;
}

}  // namespace xtrain
