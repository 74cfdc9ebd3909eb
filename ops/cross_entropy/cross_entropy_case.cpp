#include <algorithm>

#include "core/error.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

OpCase cross_entropy_case(std::string variant, const Shape& logits, const CaseInput& targets,
                          int64_t vocab_size) {
  OpCase c;
  c.op = "cross_entropy";
  c.variant = std::move(variant);
  c.inputs = {{.name = "logits", .shape = logits}, targets};
  c.reduction = std::max({int64_t{1}, logits[0], logits[1]});
  c.run = [vocab_size](const Context& ctx, std::span<const Var> in) {
    const Loss loss = cross_entropy(ctx, in[0], in[1].value, vocab_size);
    return std::vector<Var>{loss.sum, loss.count};
  };
  return c;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t n, int64_t columns, int64_t vocab_size) {
    const CaseInput targets = {.name = "targets",
                               .shape = {n},
                               .fill = Fill::indices,
                               .bound = vocab_size == 0 ? columns : vocab_size};
    std::string variant = text(n, " x ", columns);
    if (vocab_size > 0) variant += text(", ", vocab_size, " classes");
    cases.push_back(cross_entropy_case(variant, {n, columns}, targets, vocab_size));
  };
  add(1, 1, 0);
  add(5, 7, 0);
  add(3, 65, 0);
  add(2, 257, 0);
  add(4, 128, 65);
  add(65, 3, 0);
  add(0, 5, 0);
  const auto with_ignored = [&](std::string variant, const std::vector<double>& values) {
    const int64_t n = static_cast<int64_t>(values.size());
    cases.push_back(cross_entropy_case(std::move(variant), {n, 10},
                                       {.name = "targets",
                                        .shape = {n},
                                        .fill = Fill::given,
                                        .values = values,
                                        .dtype = Dtype::i32},
                                       0));
  };
  with_ignored("some targets ignored", {3, -100, 7, -100, 1});
  with_ignored("all targets ignored", {-100, -100});
  return cases;
}

}  // namespace xtrain
