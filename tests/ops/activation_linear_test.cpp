#include "ops/activation_linear/activation_linear.h"

#include "core/copy.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/column_sums_checks.h"
#include "ops/rebuilt_checks.h"
#include "support/tape_nodes.h"

using namespace xtrain;

namespace {

Parameter parameter(const Tensor& value, bool trainable) {
  Parameter p;
  p.shape = value.shape();
  p.value = value;
  p.trainable = trainable;
  return p;
}

}  // namespace

TEST_CASE("activation and linear cases", "[ops]") {
  check_op_cases("activation_linear");
}

TEST_CASE("an activation made again has the bits of the one that was projected", "[ops]") {
  check_activation_linear_bits(cpu_context(1));
}

TEST_CASE("gradients are summed over their rows where a bias asks for it", "[ops]") {
  check_column_sums(cpu_context(2));
}

TEST_CASE("activation and linear keep the input and the weight only", "[ops]") {
  const Context ctx = cpu_context(1);
  for (const bool gated : {false, true}) {
    Tape tape(ctx);
    const Var x = tape.leaf(ones(ctx, {8, 6}, Dtype::f32)),
              weight = tape.leaf(ones(ctx, {5, gated ? 3 : 6}, Dtype::f32));
    const Var y = gated ? swiglu_linear(ctx, x, weight, Var())
                        : activation_linear(ctx, x, Activation::gelu, weight, Var());
    CHECK(y.shape() == Shape{8, 5});
    CHECK(tape.node_names() ==
          std::vector<std::string>{gated ? "swiglu_linear" : "activation_linear"});
    CHECK(tape.saved_bytes() == x.value.nbytes() + weight.value.nbytes());
  }
}

TEST_CASE("swiglu and linear need one tensor of the hidden size in backward", "[ops]") {
  Context ctx = cpu_context(1);
  ctx.gemm = GemmBackend::library;  // takes no scratch from the allocator
  constexpr int64_t kRows = 64, kHidden = 512;
  Parameter weight = parameter(ones(ctx, {1, kHidden}, Dtype::f32), true);
  weight.grad = empty(ctx, weight.shape, Dtype::f32);
  const Tensor gate_up = ones(ctx, {kRows, 2 * kHidden}, Dtype::f32),
               dy = ones(ctx, {kRows, 1}, Dtype::f32);
  Tape tape(ctx);
  Var doubled = scale(ctx, tape.leaf(gate_up), 2.0);
  const Var y = swiglu_linear(ctx, doubled, tape.parameter(weight), Var());
  doubled = Var();  // the node is its sole holder, and writes the gradient over it
  const int64_t before = ctx.allocator->current_bytes();
  ctx.allocator->reset_peak();
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(ctx.allocator->peak_bytes() - before == kRows * kHidden * int64_t{sizeof(float)});
}

TEST_CASE("swiglu and linear skip gradients that nothing needs", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor gate_up = from_host(ctx, std::vector<float>{0, 2, 3, 5}, {1, 4});
  const Tensor dy = ones(ctx, {1, 1}, Dtype::f32);
  const auto gradients = [&](bool input, bool projection) {
    Parameter weight = parameter(ones(ctx, {1, 2}, Dtype::f32), projection);
    Tape tape(ctx);
    const Var x = input ? tape.leaf(gate_up) : Var(gate_up);
    const Var y = swiglu_linear(ctx, x, tape.parameter(weight), Var());
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    return std::pair(input ? tape.grad(x) : Tensor(), weight.grad);
  };
  const auto [dx, dweight] = gradients(true, true);
  const auto [dx_alone, no_dweight] = gradients(true, false);
  const auto [no_dx, dweight_alone] = gradients(false, true);
  CHECK(to_host<float>(ctx, dx_alone) == to_host<float>(ctx, dx));
  CHECK(to_host<float>(ctx, dweight_alone) == to_host<float>(ctx, dweight));
  CHECK_FALSE(no_dweight.defined());
}

TEST_CASE("a known activation is projected as it is, and made again from x in backward", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor values = from_host(ctx, std::vector<double>{0, 2, 3, -5}, {2, 2});
  const Tensor matrix = from_host(ctx, std::vector<double>{1, 10}, {1, 2}), dy = ones(ctx, {2, 1});
  const auto gradients = [&](bool known) {
    Tape tape(ctx);
    const Var x = tape.leaf(values), weight = tape.leaf(matrix);
    const Tensor given = ones(ctx, {2, 2});
    const Var y = known ? activated_linear(ctx, x, given, Activation::relu, weight, Var())
                        : activation_linear(ctx, x, Activation::relu, weight, Var());
    CHECK(to_host<double>(ctx, y.value) ==
          (known ? std::vector<double>{11, 11} : std::vector<double>{20, 3}));
    tape.backward(std::span(&y, 1), std::span(&dy, 1));
    return std::pair(to_host<double>(ctx, tape.grad(x)), to_host<double>(ctx, tape.grad(weight)));
  };
  CHECK(gradients(true) == gradients(false));
  CHECK_THROWS_WITH(
      activated_linear(ctx, values, ones(ctx, {2}), Activation::relu, matrix, Var()),
      "activation_linear: f(x) must be contiguous and have the shape of x, (2, 2); got shape (2)");
}

TEST_CASE("activation and linear name the shapes that do not fit", "[ops]") {
  const Context ctx = cpu_context(1);
  CHECK_THROWS_WITH(
      swiglu_linear(ctx, ones(ctx, {4, 6}, Dtype::f32), ones(ctx, {2, 6}, Dtype::f32), Var()),
      "linear: inner sizes must agree; got x (4, 3) and weight (2, 6)");
  CHECK_THROWS_WITH(
      swiglu_linear(ctx, ones(ctx, {4, 5}, Dtype::f32), ones(ctx, {2, 6}, Dtype::f32), Var()),
      "swiglu: the last size must be even (gate and up); got (4, 5)");
}
