#include <algorithm>

#include "core/error.h"
#include "ops/embedding/embedding.h"
#include "ops/op_case.h"

namespace xtrain {
namespace {

OpCase embedding_case(std::string variant, const Shape& weight, const CaseInput& ids) {
  OpCase c;
  c.op = "embedding";
  c.variant = std::move(variant);
  c.inputs = {{.name = "weight", .shape = weight}, ids};
  c.reduction = std::max<int64_t>(1, numel_of(ids.shape));
  c.run = [](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{embedding(ctx, in[0], in[1].value)};
  };
  return c;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& weight, const Shape& ids) {
    cases.push_back(
        embedding_case(text("weight ", weight, ", ids ", ids), weight,
                       {.name = "ids", .shape = ids, .fill = Fill::indices, .bound = weight[0]}));
  };
  add({1, 1}, {1});
  add({5, 3}, {2, 4});
  add({4, 31}, {9});  // below, at and above the block of columns of the gradient
  add({4, 32}, {9});
  add({4, 33}, {3, 3});
  add({5, 3}, {0});
  add({5, 0}, {4});
  cases.push_back(embedding_case("one id, many times", {3, 2},
                                 {.name = "ids",
                                  .shape = {3, 2},
                                  .fill = Fill::given,
                                  .values = {2, 2, 2, 2, 2, 2},
                                  .dtype = Dtype::i32}));
  return cases;
}

}  // namespace xtrain
