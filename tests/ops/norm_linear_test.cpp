#include "ops/norm_linear/norm_linear.h"

#include "core/copy.h"
#include "ops/rebuilt_checks.h"
#include "support/tape_nodes.h"

using namespace xtrain;

TEST_CASE("norm and linear cases", "[ops]") {
  check_op_cases("norm_linear");
}

TEST_CASE("a norm made again has the bits of the one that was projected", "[ops]") {
  check_norm_linear_bits(cpu_context(1));
}

TEST_CASE("norm and linear keep the sum, the weights and a number a row", "[ops]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t kRows = 8, kWidth = 6, kRowBytes = kRows * int64_t{sizeof(float)};
  for (const bool has_branch : {false, true}) {
    Tape tape(ctx);
    const Var x = tape.leaf(ones(ctx, {kRows, kWidth}, Dtype::f32)),
              norm_weight = tape.leaf(ones(ctx, {6}, Dtype::f32));
    const Var branch = has_branch ? tape.leaf(ones(ctx, {kRows, kWidth}, Dtype::f32)) : Var();
    const Var weight = tape.leaf(ones(ctx, {5, kWidth}, Dtype::f32));
    const NormLinear r =
        norm_linear(ctx, x, branch, {norm_weight, Var(), weight, Var()}, NormKind::rms, 1e-5);
    CHECK(r.y.shape() == Shape{kRows, 5});
    CHECK(tape.node_names() == std::vector<std::string>{"norm_linear"});
    CHECK(tape.saved_bytes() ==
          x.value.nbytes() + norm_weight.value.nbytes() + weight.value.nbytes() + kRowBytes);
    CHECK(r.sum.value.shares_storage(x.value) == !has_branch);
  }
}

TEST_CASE("norm and linear skip gradients that nothing needs", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = from_host(ctx, std::vector<float>{0, 2, 3, 5}, {1, 4});
  const Tensor vector = ones(ctx, {4}, Dtype::f32), matrix = ones(ctx, {2, 4}, Dtype::f32);
  const Tensor dy = from_host(ctx, std::vector<float>{1, 10}, {1, 2});
  // Gradients of x, the norm's weight and the projection's weight, those that are wanted.
  const auto gradients = [&](const std::vector<bool>& wanted) {
    Tape tape(ctx);
    const Tensor values[] = {x, vector, matrix};
    std::vector<Var> in;
    for (size_t i = 0; i < 3; ++i) in.push_back(wanted[i] ? tape.leaf(values[i]) : Var(values[i]));
    const Var y =
        norm_linear(ctx, in[0], Var(), {in[1], Var(), in[2], Var()}, NormKind::rms, 1e-5).y;
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    std::vector<std::vector<float>> result;
    for (size_t i = 0; i < 3; ++i) {
      result.push_back(wanted[i] ? to_host<float>(ctx, tape.grad(in[i])) : std::vector<float>());
    }
    return result;
  };
  const auto all = gradients({true, true, true});
  for (int which = 1; which < 7; ++which) {
    const std::vector<bool> wanted{(which & 1) != 0, (which & 2) != 0, (which & 4) != 0};
    const auto some = gradients(wanted);
    for (size_t i = 0; i < 3; ++i) {
      INFO("wanted " << which << ", input " << i);
      if (wanted[i]) CHECK(some[i] == all[i]);
    }
  }
}

TEST_CASE("norm and linear name the shapes that do not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  const Var x(ones(ctx, {2, 4}, Dtype::f32)), vector(ones(ctx, {4}, Dtype::f32)),
      weight(ones(ctx, {3, 4}, Dtype::f32));
  CHECK_THROWS_WITH(
      norm_linear(ctx, x, vector, {vector, Var(), weight, Var()}, NormKind::rms, 1e-5),
      "norm_linear: x and branch must have one shape and dtype; got (2, 4) f32 and (4) f32");
  CHECK_THROWS_WITH(norm_linear(ctx, x, Var(), {vector, Var(), vector, Var()}, NormKind::rms, 1e-5),
                    "linear: x must be [..., in] and weight [out, in]; got (2, 4) and (4)");
  CHECK_THROWS_WITH(norm_linear(ctx, x, Var(), {weight, Var(), weight, Var()}, NormKind::rms, 1e-5),
                    "rms_norm: weight must have shape (4), the width of x (2, 4); got (3, 4)");
}
