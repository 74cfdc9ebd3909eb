#include "core/error.h"
#include "ops/op_case.h"
#include "ops/reduce/reduce.h"

namespace xtrain {
namespace {

using Reduce = Var (*)(const Context&, const Var&, const std::vector<int>&, bool);

struct Reduction {
  const char* variant;
  Shape shape;
  std::vector<int> dims;
  bool keep_dims = false;
};

OpCase reduce_case(const char* op, Reduce call, const Reduction& r) {
  OpCase c;
  c.op = op;
  c.variant = text(r.variant, " of ", r.shape);
  c.inputs = {{.name = "x", .shape = r.shape}};
  c.run = [call, r](const Context& ctx, std::span<const Var> in) {
    return std::vector<Var>{call(ctx, in[0], r.dims, r.keep_dims)};
  };
  c.reduction = std::max<int64_t>(1, numel_of(r.shape));
  return c;
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  const std::vector<Reduction> reductions = {
      {"all", {3, 65}, {}},
      {"all, sizes kept", {2, 3, 4}, {}, true},
      {"a scalar", {}, {}},
      {"the last dimension", {3, 65}, {-1}},
      {"the last dimension, kept", {3, 17}, {-1}, true},
      {"the first dimension", {65, 3}, {0}},
      {"the first dimension, wider than a block of columns", {3, 129}, {0}},
      {"the middle dimension", {2, 5, 3}, {1}},
      {"two neighbours", {2, 3, 4}, {1, 2}},
      {"two with one between them", {2, 3, 4}, {2, 0}},
      {"two with one between them, kept", {2, 3, 4}, {0, 2}, true},
      {"a size of 1", {3, 1, 4}, {1}},
      {"no rows", {0, 5}, {1}},
      {"over no rows", {0, 5}, {0}},
      {"over nothing at all", {0, 5}, {}},
  };
  std::vector<OpCase> cases;
  for (const Reduction& r : reductions) {
    cases.push_back(reduce_case("sum", sum, r));
    cases.push_back(reduce_case("mean", mean, r));
  }
  return cases;
}

}  // namespace xtrain
