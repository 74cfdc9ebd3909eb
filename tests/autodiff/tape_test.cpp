#include "autodiff/tape.h"

#include "autodiff/grad_check.h"
#include "core/error.h"
#include "ops/arithmetic/arithmetic.h"
#include "ops/elementary/elementary.h"
#include "ops/reduce/reduce.h"
#include "support/catch.h"
#include "support/tape_nodes.h"
#include "support/tolerance.h"

using namespace xtrain;
using Doubles = std::vector<double>;

namespace {

Doubles grad_of(const Tape& tape, const Var& leaf) {
  return to_host<double>(tape.ctx(), tape.grad(leaf));
}

// Outputs 2x, 3x and the number of elements.
class ManyNode final : public Node {
 public:
  explicit ManyNode(std::vector<bool>* given) : given_(given) {}
  const char* name() const override { return "many"; }
  void backward(Gradients& g) override {
    for (int i = 0; i < 3; ++i) {
      const Tensor dy = g.take(i);
      given_->push_back(dy.defined());
      if (dy.defined()) g.give(0, scale(g.ctx(), dy, 2.0 + i).value);
    }
  }

 private:
  std::vector<bool>* given_;
};

std::vector<Var> many(const Context& ctx, const Var& x, std::vector<bool>& given) {
  const Tensor count = from_host(ctx, std::vector<int32_t>{3}, {1});
  return record_outputs<ManyNode>(
      std::span(&x, 1), {scale(ctx, x.value, 2.0).value, scale(ctx, x.value, 3.0).value, count},
      &given);
}

// y = x, and tells whether the gradient's column sums are known; gives 1, 2, ... as those of dx.
class SumsNode final : public Node {
 public:
  explicit SumsNode(Tensor* taken) : taken_(taken) {}
  const char* name() const override { return "sums"; }
  void backward(Gradients& g) override {
    *taken_ = g.take_column_sums(0);
    const Tensor dy = g.take(0);
    g.give(0, dy, taken_->defined() ? *taken_ : doubles(g.ctx(), {1.0, 2.0}, {2, 1}));
  }

 private:
  Tensor* taken_;
};

Var sums_node(const Var& x, Tensor& taken) {
  return record<SumsNode>({x}, x.value, &taken);
}

// Does not even look at its gradient.
class IgnoreNode final : public Node {
 public:
  const char* name() const override { return "ignore"; }
  void backward(Gradients&) override {}
};

}  // namespace

TEST_CASE("a value used by several later operations gets the sum of its gradients", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {2.0}, {1}));
  const Var y = scale(ctx, x, 3.0);
  const Var c = add(ctx, scale(ctx, y, 2.0), scale(ctx, y, 5.0));
  CHECK(to_host<double>(ctx, c.value) == Doubles{42.0});
  tape.backward(c);
  CHECK(grad_of(tape, x) == Doubles{21.0});
}

TEST_CASE("one tensor on both sides of an operation counts twice", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Tensor value = doubles(ctx, {2.0, -3.0}, {2}), dy = doubles(ctx, {1.0, 10.0}, {2});
  const auto gradient = [&](auto op) {
    Tape tape(ctx);
    const Var x = tape.leaf(value);
    walk(tape, op(x), dy);
    return grad_of(tape, x);
  };
  CHECK(gradient([&](const Var& x) { return add(ctx, x, x); }) == Doubles{2.0, 20.0});
  CHECK(gradient([&](const Var& x) { return sub(ctx, x, x); }) == Doubles{0.0, 0.0});
  CHECK(gradient([&](const Var& x) { return mul(ctx, x, x); }) == Doubles{4.0, -60.0});
  CHECK(to_host<double>(ctx, dy) == Doubles{1.0, 10.0});
}

TEST_CASE("a residual chain of 50 layers agrees with finite differences", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const auto chain = [&](Tape*, std::span<const Var> in) {
    Var h = in[0];
    for (int layer = 0; layer < 50; ++layer) {
      h = add(ctx, h, scale(ctx, tanh(ctx, mul(ctx, h, in[1])), 0.1));
    }
    return std::vector<Var>{h};
  };
  const Tensor inputs[] = {doubles(ctx, {0.3, -0.2, 0.9, -1.1}, {4}),
                           doubles(ctx, {0.5, -0.7, 0.1, 0.4}, {4})};
  for (const GradCheckInput& result : grad_check(ctx, chain, inputs)) {
    CHECK(result.relative_error <= kGradCheckTolerance);
    CHECK(result.elements == 4);
  }
}

TEST_CASE("a tape is walked once and records nothing afterwards", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {2.0}, {1}));
  const Var y = scale(ctx, x, 3.0);
  tape.backward(y);
  CHECK_THROWS_WITH(
      tape.backward(y),
      "backward: this tape has been walked and its nodes freed; record the forward again");
  CHECK_THROWS_WITH(scale(ctx, x, 2.0),
                    "tape: scale cannot be recorded after backward; use a fresh tape");
  CHECK(grad_of(tape, x) == Doubles{3.0});
}

TEST_CASE("a parameter written between forward and backward is an error that names the op",
          "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter w = make_parameter("w", doubles(ctx, {2.0, 3.0}, {2}));
  const auto run = [&](bool write_through_view) {
    Tape tape(ctx);
    const Var x = tape.leaf(doubles(ctx, {1.0, 1.0}, {2}));
    const Var y = mul(ctx, x, tape.parameter(w));
    if (write_through_view) {
      fill(ctx, w.value.slice(0, 1, 1), 5.0);
    } else {
      w.value.mutable_data<double>()[0] -= 0.1;
    }
    walk(tape, y, ones(ctx, {2}));
  };
  for (bool through_view : {false, true}) {
    CHECK_THROWS_WITH(run(through_view),
                      "backward: a tensor of shape (2) kept by mul was changed in place since; "
                      "write to a copy instead");
  }
}

TEST_CASE("a write to what no node kept does no harm", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {1.0, 1.0}, {2}));
  Var y = scale(ctx, x, 2.0);
  const Var z = scale(ctx, y, 3.0);
  fill(ctx, y.value, 100.0);
  walk(tape, z, ones(ctx, {2}));
  CHECK(grad_of(tape, x) == Doubles{6.0, 6.0});
}

TEST_CASE("each parameter is announced once, when its gradient is final, tied ones last",
          "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter tied = make_parameter("tied", doubles(ctx, {2.0}, {1}));
  Parameter middle = make_parameter("middle", doubles(ctx, {3.0}, {1}));
  Parameter last = make_parameter("last", doubles(ctx, {5.0}, {1}));
  Tape tape(ctx);
  Var h = tape.leaf(doubles(ctx, {1.0}, {1}));
  for (Parameter* p : {&tied, &middle, &last, &tied}) h = mul(ctx, h, tape.parameter(*p));
  std::vector<std::string> order;
  Doubles at_call;
  tape.backward(h, [&](Parameter& p) {
    order.push_back(p.name);
    at_call.push_back(to_host<double>(ctx, p.grad)[0]);
  });
  CHECK(order == std::vector<std::string>{"last", "middle", "tied"});
  CHECK(at_call == Doubles{12.0, 20.0, 60.0});
  CHECK(to_host<double>(ctx, tied.grad)[0] == 60.0);  // of 2 * 3 * 5 * 2 in both places
}

TEST_CASE("a parameter that the loss does not reach is announced without a gradient",
          "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter used = make_parameter("used", doubles(ctx, {2.0}, {1}));
  Parameter aside = make_parameter("aside", doubles(ctx, {3.0}, {1}));
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {1.0}, {1}));
  const Var y = mul(ctx, x, tape.parameter(used));
  mul(ctx, y, tape.parameter(aside));
  std::vector<std::string> order;
  tape.backward(y, [&](Parameter& p) { order.push_back(p.name); });
  CHECK(order == std::vector<std::string>{"aside", "used"});
  CHECK(used.has_grad);
  CHECK_FALSE(aside.has_grad);
}

TEST_CASE("parameter gradients add up over tapes until they are forgotten", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter w = make_parameter("w", doubles(ctx, {2.0}, {1}));
  const auto step = [&](double x) {
    Tape tape(ctx);
    tape.backward(mul(ctx, tape.parameter(w), doubles(ctx, {x}, {1})));
    return to_host<double>(ctx, w.grad)[0];
  };
  CHECK(step(3.0) == 3.0);
  CHECK(step(4.0) == 7.0);
  w.has_grad = false;
  CHECK(step(5.0) == 5.0);
}

TEST_CASE("a parameter that is not trained gets no gradient and records nothing", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter frozen = make_parameter("frozen", doubles(ctx, {2.0}, {1}));
  frozen.trainable = false;
  Parameter trained = make_parameter("trained", doubles(ctx, {3.0}, {1}));
  Tape tape(ctx);
  const Var f = tape.parameter(frozen);
  exp(ctx, f);
  CHECK(tape.node_names().empty());
  int announced = 0;
  tape.backward(mul(ctx, f, tape.parameter(trained)), [&](Parameter&) { ++announced; });
  CHECK(announced == 1);
  CHECK_FALSE(frozen.grad.defined());
  CHECK(to_host<double>(ctx, trained.grad) == Doubles{2.0});
}

TEST_CASE("an output that nothing uses has no gradient, an integer output never", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const auto run = [&](std::vector<int> used) {
    Tape tape(ctx);
    const Var x = tape.leaf(doubles(ctx, {1.0, 2.0}, {2}));
    std::vector<bool> given;
    const std::vector<Var> y = many(ctx, x, given);
    CHECK(y[2].tape == nullptr);
    std::vector<Var> outputs;
    for (int i : used) outputs.push_back(y[i]);
    const std::vector<Tensor> gradients(outputs.size(), ones(ctx, {2}));
    tape.backward(outputs, gradients);
    return std::pair(given, tape.grad(x).defined() ? grad_of(tape, x) : Doubles{});
  };
  using Given = std::vector<bool>;
  CHECK(run({0}) == std::pair(Given{true, false, false}, Doubles{2.0, 2.0}));
  CHECK(run({1}) == std::pair(Given{false, true, false}, Doubles{3.0, 3.0}));
  CHECK(run({0, 1}) == std::pair(Given{true, true, false}, Doubles{5.0, 5.0}));
  CHECK(run({1, 1}) == std::pair(Given{false, true, false}, Doubles{6.0, 6.0}));
  CHECK(run({}) == std::pair(Given{}, Doubles{}));  // not even called
}

TEST_CASE("a gradient handed to two inputs is not changed through either", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Tensor dy = doubles(ctx, {1.0, 10.0}, {2});
  {  // both sides work in place on what they get
    Tape tape(ctx);
    const Var a = tape.leaf(ones(ctx, {2})), b = tape.leaf(ones(ctx, {2}));
    const Var y = add(ctx, scale(ctx, a, 2.0), scale(ctx, b, 3.0));
    walk(tape, scale(ctx, y, 1.0), dy);
    CHECK(grad_of(tape, a) == Doubles{2.0, 20.0});
    CHECK(grad_of(tape, b) == Doubles{3.0, 30.0});
  }
  {  // one side adds to what it got, by either way of adding
    for (bool written : {false, true}) {
      Tape tape(ctx);
      const Var a = tape.leaf(ones(ctx, {2})), b = tape.leaf(ones(ctx, {2}));
      const Var other = written ? written_scale(ctx, a, 5.0) : scale(ctx, a, 5.0);
      const Var outputs[] = {scale(ctx, add(ctx, a, b), 1.0), other};
      const Tensor gradients[] = {dy, dy};
      tape.backward(outputs, gradients);
      CHECK(grad_of(tape, a) == Doubles{6.0, 60.0});
      CHECK(grad_of(tape, b) == Doubles{1.0, 10.0});
    }
  }
  {  // a residual stream: each layer triples
    Tape tape(ctx);
    const Var x = tape.leaf(ones(ctx, {2}));
    Var h = x;
    for (int layer = 0; layer < 4; ++layer) h = add(ctx, h, scale(ctx, h, 2.0));
    walk(tape, h, dy);
    CHECK(grad_of(tape, x) == Doubles{81.0, 810.0});
  }
  CHECK(to_host<double>(ctx, dy) == Doubles{1.0, 10.0});
}

TEST_CASE("a gradient of stride 0 is not added to in place", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {3}));
  const Var outputs[] = {scale(ctx, x, 2.0), sum(ctx, x)};
  const Tensor gradients[] = {doubles(ctx, {1.0, 2.0, 3.0}, {3}), doubles(ctx, {10.0}, {})};
  tape.backward(outputs, gradients);
  CHECK(grad_of(tape, x) == Doubles{12.0, 14.0, 16.0});
}

TEST_CASE("a chain's gradient lives in one buffer, and what was passed is freed", "[autodiff]") {
  const Context ctx = cpu_context(1);
  constexpr int64_t kBytes = 8 * 1000;
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {1000}));
  {
    Var h = x;
    for (int layer = 0; layer < 20; ++layer) h = sigmoid(ctx, h);
    CHECK(tape.saved_bytes() == 20 * kBytes);
    CHECK(ctx.allocator->current_bytes() == 21 * kBytes);
    ctx.allocator->reset_peak();
    walk(tape, h, ones(ctx, {1000}));
  }
  CHECK(ctx.allocator->peak_bytes() == 23 * kBytes);  // the caller's gradient and one more
  CHECK(ctx.allocator->current_bytes() == 2 * kBytes);
}

TEST_CASE("a gradient that its node does not take is freed all the same", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {1000}));
  walk(tape, scale(ctx, record<IgnoreNode>({x}, x.value), 2.0), ones(ctx, {1000}));
  CHECK_FALSE(tape.grad(x).defined());
  CHECK(ctx.allocator->current_bytes() == 8000);
}

TEST_CASE("values without a tape record nothing", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Var a = ones(ctx, {2}), b = ones(ctx, {2});
  const Var y = sigmoid(ctx, mul(ctx, a, b));
  CHECK(y.tape == nullptr);
  CHECK(ctx.allocator->current_bytes() == 3 * 16);  // the product is gone
  Parameter p = make_parameter("p", ones(ctx, {2}));
  CHECK(use(nullptr, p).tape == nullptr);
}

TEST_CASE("a tape tells what it recorded and keeps", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter w = make_parameter("w", ones(ctx, {100}));
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {100}));
  const Var y = mul(ctx, x, tape.parameter(w));  // keeps x; w is there anyway
  const Var z = exp(ctx, y);                     // keeps z
  add(ctx, mul(ctx, z, z), y);                   // keeps z, which is counted once
  CHECK(tape.node_names() == std::vector<std::string>{"mul", "exp", "mul", "add"});
  CHECK(tape.saved_bytes() == 2 * 800);
}

TEST_CASE("gradients of bf16 leaves and parameters are f32", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Parameter w = make_parameter("w", ones(ctx, {1}, Dtype::bf16));
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {1}, Dtype::bf16));
  Var y = mul(ctx, x, tape.parameter(w));
  for (int i = 0; i < 300; ++i) y = add(ctx, y, mul(ctx, x, tape.parameter(w)));
  walk(tape, y, ones(ctx, {1}, Dtype::bf16));
  CHECK(to_host<float>(ctx, w.grad) == std::vector<float>{301.0f});  // bf16 would stop at 256
  CHECK(to_host<float>(ctx, tape.grad(x)) == std::vector<float>{301.0f});
}

TEST_CASE("a leaf's gradient starts from what it is given", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {2}));
  const Tensor before = doubles(ctx, {100.0, 200.0}, {2});
  tape.preset_grad(x, before);
  walk(tape, scale(ctx, x, 3.0), ones(ctx, {2}));
  CHECK(grad_of(tape, x) == Doubles{103.0, 203.0});
  CHECK(to_host<double>(ctx, before) == Doubles{100.0, 200.0});
}

TEST_CASE("misuse of a tape is a clean error", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx), other(ctx);
  const Var x = tape.leaf(ones(ctx, {2})), foreign = other.leaf(ones(ctx, {2}));
  CHECK_THROWS_WITH(tape.backward(x), "backward: the loss must have one element; got shape (2)");
  CHECK_THROWS_WITH(tape.backward(sum(ctx, Var(ones(ctx, {2})))),
                    "backward: the loss must lie on this tape; it depends on no parameter");
  CHECK_THROWS_AS(tape.backward(sum(ctx, foreign)), Error);
  CHECK_THROWS_WITH(add(ctx, x, foreign), "tape: inputs of one op must lie on one tape");
  CHECK_THROWS_AS(tape.grad(foreign), Error);
  CHECK_THROWS_WITH(tape.leaf(from_host(ctx, std::vector<int32_t>{1}, {1})),
                    "tape: a leaf must have a floating dtype; got i32");
  CHECK_THROWS_WITH(walk(tape, x, ones(ctx, {3})),
                    "backward: a gradient must have its value's shape (2); got (3)");
  CHECK_THROWS_WITH(tape.backward(std::span(&x, 1), {}),
                    "backward: 1 outputs need as many gradients; got 0");
}

TEST_CASE("column sums reach whoever takes the gradient they belong to", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {5.0}, {1}));
  Tensor last, first;
  walk(tape, sums_node(sums_node(x, first), last), ones(ctx, {1}));
  CHECK_FALSE(last.defined());
  CHECK(to_host<double>(ctx, first) == Doubles{1.0, 2.0});
  CHECK(to_host<double>(ctx, tape.column_sums(x)) == Doubles{1.0, 2.0});
}

TEST_CASE("column sums are forgotten when something else is added to the gradient", "[autodiff]") {
  const Context ctx = cpu_context(1);
  for (const bool sums_come_first : {true, false}) {
    for (const bool written : {true, false}) {
      Tape tape(ctx);
      const Var x = tape.leaf(doubles(ctx, {5.0}, {1}));
      Tensor taken, unused;
      const Var y = sums_node(x, taken);
      const auto other = [&] { return written ? written_scale(ctx, y, 3.0) : scale(ctx, y, 3.0); };
      // What is recorded last is walked first.
      const Var a = sums_come_first ? other() : sums_node(y, unused);
      const Var b = sums_come_first ? sums_node(y, unused) : other();
      walk(tape, add(ctx, a, b), ones(ctx, {1}));
      CHECK_FALSE(taken.defined());
      CHECK(grad_of(tape, x) == Doubles{4.0});
    }
  }
}
