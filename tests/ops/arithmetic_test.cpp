#include "ops/arithmetic/arithmetic.h"

#include "core/error.h"
#include "ops/reduce/reduce.h"
#include "ops/view/view.h"
#include "support/catch.h"
#include "support/op_tests.h"

using namespace xtrain;
using Doubles = std::vector<double>;

namespace {

Tensor tensor(const Context& ctx, const Doubles& values, const Shape& shape) {
  return from_host(ctx, values, shape);
}

Tensor counted(const Context& ctx, const Shape& shape) {
  Doubles values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  return tensor(ctx, values, shape);
}

struct Gradients2 {
  Tensor a, b;
};

using Binary = Var (*)(const Context&, const Var&, const Var&);

// Gradients of sum(op(a, b)).
Gradients2 gradients_of(const Context& ctx, Binary op, const Tensor& a, const Tensor& b) {
  Tape tape(ctx);
  const Var va = tape.leaf(a), vb = tape.leaf(b);
  tape.backward(sum(ctx, op(ctx, va, vb)));
  return {tape.grad(va), tape.grad(vb)};
}

// Stands before an op's input and shows the gradient tensor that the op handed back.
class Receive final : public Node {
 public:
  explicit Receive(Tensor* into) : into_(into) {}
  const char* name() const override { return "receive"; }
  void backward(Gradients& g) override { *into_ = g.take(0); }

 private:
  Tensor* into_;
};

}  // namespace

TEST_CASE("arithmetic cases", "[ops]") {
  check_op_cases("arithmetic");
}

TEST_CASE("gradients of broadcast operands have the operands' shapes and values", "[ops]") {
  const Context ctx = cpu_context(1);
  {
    const auto g = gradients_of(ctx, mul, counted(ctx, {3, 1}), counted(ctx, {1, 4}));
    CHECK(g.a.shape() == Shape{3, 1});
    CHECK(g.b.shape() == Shape{1, 4});
    CHECK(to_host<double>(ctx, g.a) == Doubles{10, 10, 10});
    CHECK(to_host<double>(ctx, g.b) == Doubles{6, 6, 6, 6});
  }
  {
    const auto g = gradients_of(ctx, mul, tensor(ctx, {2.0}, {}), counted(ctx, {5, 4}));
    CHECK(g.a.shape() == Shape{});
    CHECK(to_host<double>(ctx, g.a) == Doubles{210});
    CHECK(to_host<double>(ctx, g.b) == Doubles(20, 2.0));
  }
  {
    const auto g = gradients_of(ctx, add, counted(ctx, {4}), counted(ctx, {3, 4}));
    CHECK(g.a.shape() == Shape{4});
    CHECK(to_host<double>(ctx, g.a) == Doubles{3, 3, 3, 3});
    CHECK(to_host<double>(ctx, g.b) == Doubles(12, 1.0));
  }
  {
    const Tensor b = tensor(ctx, Doubles(512, 0.5), {2, 1, 4, 64});
    const auto g = gradients_of(ctx, mul, counted(ctx, {2, 1, 4, 1}), b);
    CHECK(g.a.shape() == Shape{2, 1, 4, 1});
    CHECK(to_host<double>(ctx, g.a) == Doubles(8, 32.0));
    CHECK(to_host<double>(ctx, g.b)[511] == 8.0);
  }
  {
    const auto g = gradients_of(ctx, sub, counted(ctx, {3, 1}), counted(ctx, {1, 4}));
    CHECK(to_host<double>(ctx, g.a) == Doubles{4, 4, 4});
    CHECK(to_host<double>(ctx, g.b) == Doubles{-3, -3, -3, -3});
  }
  {
    const auto g = gradients_of(ctx, div, counted(ctx, {3, 1}), tensor(ctx, {1, 2, 4, 8}, {1, 4}));
    CHECK(to_host<double>(ctx, g.a) == Doubles{1.875, 1.875, 1.875});
    CHECK(to_host<double>(ctx, g.b) == Doubles{-6.0, -1.5, -0.375, -0.09375});
  }
}

TEST_CASE("a long broadcast gradient in bf16 is summed in f32", "[ops]") {
  const Context ctx = cpu_context(2);
  Tape tape(ctx);
  const Tensor one = from_host(ctx, std::vector<BFloat16>{1.0f}, {1, 1});
  const Var scalar = tape.leaf(one);
  const Var y = mul(ctx, scalar, one.expand({4096, 3}));
  const Tensor dy = one.expand({4096, 3});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  CHECK(to_host<float>(ctx, tape.grad(scalar)) == std::vector<float>{12288.0f});
}

TEST_CASE("add hands one tensor to both operands", "[ops]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Tensor x = counted(ctx, {2, 3});
  const Var a = tape.leaf(x), b = tape.leaf(x);
  Tensor da, db;
  const Var y = add(ctx, record<Receive>({a}, x, &da), record<Receive>({b}, x, &db));
  const Tensor dy = counted(ctx, {2, 3});
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  REQUIRE(da.defined());
  CHECK(da.shares_storage(dy));
  CHECK(db.shares_storage(dy));
}

TEST_CASE("mul and div keep only what a wanted gradient needs", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor constant = counted(ctx, {8}), x = counted(ctx, {8});
  const auto saved_bytes = [&](auto&& run) {
    Tape tape(ctx);
    run(tape.leaf(x));
    return tape.saved_bytes();
  };
  CHECK(saved_bytes([&](const Var& v) { add(ctx, v, v); }) == 0);
  CHECK(saved_bytes([&](const Var& v) { sub(ctx, v, constant); }) == 0);
  CHECK(saved_bytes([&](const Var& v) { scale(ctx, v, 2.0); }) == 0);
  CHECK(saved_bytes([&](const Var& v) { mul(ctx, v, constant); }) == 64);
  CHECK(saved_bytes([&](const Var& v) { mul(ctx, v, v); }) == 64);
  CHECK(saved_bytes([&](const Var& v) { div(ctx, v, constant); }) == 64);
  CHECK(saved_bytes([&](const Var& v) { div(ctx, constant, v); }) == 128);
}

TEST_CASE("mixed dtypes, devices and shapes are refused with their values", "[ops]") {
  const Context ctx = cpu_context(1);
  const Tensor x = counted(ctx, {2, 3});
  const Tensor f32 = from_host(ctx, std::vector<float>(6), {2, 3});
  CHECK_THROWS_WITH(add(ctx, x, f32), "add: dtypes must agree; got f64 and f32; cast one of them");
  CHECK_THROWS_WITH(mul(ctx, x, counted(ctx, {2})),
                    "mul: shapes must be equal or repeat along sizes of 1; got (2, 3) and (2)");
  CHECK_THROWS_WITH(div(ctx, x, Var()), "div: both operands must be given; got an undefined one");
  const Tensor ids = from_host(ctx, std::vector<int32_t>{1}, {1});
  CHECK_THROWS_WITH(sub(ctx, ids, ids), "sub: dtype must be f64, f32 or bf16; got i32");
  const auto storage = std::make_shared<Storage>(ctx.allocator, Device{DeviceType::cuda, 1}, 48);
  const Tensor elsewhere(storage, Dtype::f64, {2, 3}, {3, 1}, 0);
  CHECK_THROWS_WITH(add(ctx, x, elsewhere),
                    "add: operands must lie on one device; got cpu and cuda:1");
  CHECK_THROWS_WITH(scale(ctx, elsewhere, 2.0),
                    "scale: tensor must lie on the context's device cpu; got cuda:1");
}
