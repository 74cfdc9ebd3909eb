#include "core/error.h"
#include "ops/matmul/matmul.h"
#include "ops/op_case.h"
#include "ops/view/view.h"

namespace xtrain {
namespace {

OpCase matmul_case(std::string variant, const Shape& a, const Shape& b, int64_t reduction,
                   OpCall run) {
  OpCase c;
  c.op = "matmul";
  c.variant = std::move(variant);
  c.inputs = {{.name = "a", .shape = a}, {.name = "b", .shape = b}};
  c.reduction = reduction;
  c.run = std::move(run);
  return c;
}

std::vector<Var> product(const Context& ctx, std::span<const Var> in) {
  return {matmul(ctx, in[0], in[1])};
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& a, const Shape& b, int64_t reduction) {
    cases.push_back(matmul_case(text(a, " x ", b), a, b, reduction, product));
  };
  add({1, 1}, {1, 1}, 1);
  add({3, 5}, {5, 4}, 5);
  add({33, 7}, {7, 65}, 65);
  add({2, 3, 5}, {2, 5, 4}, 5);
  add({3, 5}, {2, 5, 4}, 8);        // a repeats
  add({2, 3, 5}, {1, 5, 4}, 6);     // b repeats
  add({2, 1, 3, 4}, {3, 4, 2}, 6);  // both repeat
  add({3, 0}, {0, 4}, 1);           // no terms
  add({0, 5}, {5, 4}, 5);           // no rows
  add({2, 3, 5}, {2, 5, 0}, 5);     // no columns
  add({1, 3, 5}, {0, 5, 4}, 1);     // no repeats
  cases.push_back(matmul_case("transposed operands", {5, 3}, {4, 5}, 5,
                              [](const Context& ctx, std::span<const Var> in) {
                                const Var a = transpose(ctx, in[0], 0, 1);
                                const Var b = transpose(ctx, in[1], 0, 1);
                                return std::vector<Var>{matmul(ctx, a, b)};
                              }));
  cases.push_back(matmul_case("slices of one tensor, which is also used whole", {4, 8}, {4, 3}, 8,
                              [](const Context& ctx, std::span<const Var> in) {
                                const Var left = slice(ctx, in[0], 1, 0, 4);
                                const Var right = slice(ctx, in[0], 1, 4, 4);
                                const Var square = matmul(ctx, left, right);
                                return std::vector<Var>{matmul(ctx, square, in[1]), in[0]};
                              }));
  return cases;
}

}  // namespace xtrain
