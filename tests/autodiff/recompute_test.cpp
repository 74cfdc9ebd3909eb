#include "autodiff/recompute.h"

#include <algorithm>

#include "core/error.h"
#include "ops/dropout/dropout.h"
#include "ops/elementary/elementary.h"
#include "ops/reduce/reduce.h"
#include "ops/view/view.h"
#include "support/catch.h"
#include "support/tape_nodes.h"

using namespace xtrain;

namespace {

// A two-layer network whose layers can run as recomputed blocks: packed input, residuals, dropout,
// broadcast parameters, one of them tied.
struct Network {
  Context ctx = cpu_context(2);
  Dtype dtype = Dtype::f32;
  std::vector<Parameter> weights;

  explicit Network(Dtype type) : dtype(type) {
    ctx.training = true;
    ctx.random.seed = 3;
    for (uint64_t i = 0; i < 3; ++i) {
      weights.push_back(make_parameter(text("w", i), random({8}, 10 + i)));
    }
  }

  Tensor random(const Shape& shape, uint64_t site) const {
    const RandomStream stream = random_stream(1, 0, site);
    std::vector<double> values(numel_of(shape));
    for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(stream, 0, i);
    return cast(ctx, from_host(ctx, values, shape), dtype);
  }

  Var layer(Tape* tape, const Var& x, const Var& side, uint64_t site) {
    const Var gate = sigmoid(ctx, mul(ctx, x, use(tape, weights[site])));
    const Var h = tanh(ctx, mul(ctx, mul(ctx, gate, side), use(tape, weights[2])));
    return add(ctx, x, dropout(ctx, h, {.p = 0.3, .site = site}));
  }

  std::vector<Parameter*> parameters(uint64_t site) { return {&weights[site], &weights[2]}; }
};

struct Result {
  std::vector<std::vector<double>> values;  // output, dx, dside, parameter gradients
  std::vector<std::string> ready;
  bool all_final = true;  // no gradient changed after its parameter was announced
  std::vector<std::string> nodes;
  int64_t saved_bytes = 0;
};

enum class Recompute { none, layers, nested };

// y = x, and passes the gradient's column sums on, if any.
class PassSumsNode final : public Node {
 public:
  explicit PassSumsNode(Tensor* taken) : taken_(taken) {}
  const char* name() const override { return "pass_sums"; }
  void backward(Gradients& g) override {
    *taken_ = g.take_column_sums(0);
    g.give(0, g.take(0), *taken_);
  }

 private:
  Tensor* taken_;
};

Var pass_sums(const Var& x, Tensor& taken) {
  return record<PassSumsNode>({x}, x.value, &taken);
}

Result run(Dtype dtype, Recompute level) {
  Network net(dtype);
  const Context& ctx = net.ctx;
  Tape tape(ctx);
  const Var packed = tape.leaf(net.random({16, 16}, 1));
  const std::vector<Var> parts = split(ctx, packed, 1, {8, 8});
  Var h = parts[0];
  for (uint64_t site : {0, 1}) {
    const Block layer = [&net, site](Tape* t, std::span<const Var> in) {
      return std::vector<Var>{net.layer(t, in[0], in[1], site)};
    };
    const std::vector<Parameter*> parameters = net.parameters(site);
    const Block nested = [layer, parameters](Tape* t, std::span<const Var> in) {
      return recompute(t, layer, in, parameters);
    };
    const Var in[] = {h, parts[1]};
    h = level == Recompute::none
            ? layer(&tape, in)[0]
            : recompute(&tape, level == Recompute::nested ? nested : layer, in, parameters)[0];
  }
  const Var y = add(ctx, mul(ctx, h, parts[1]), h);
  Result result;
  result.nodes = tape.node_names();
  result.saved_bytes = tape.saved_bytes();
  const auto keep = [&](const Tensor& x) {
    result.values.push_back(to_host<double>(ctx, cast(ctx, x, Dtype::f64)));
  };
  keep(y.value);
  std::vector<std::pair<const Parameter*, uint64_t>> versions;
  walk(tape, y, net.random({16, 8}, 2), [&](Parameter& p) {
    result.ready.push_back(p.name);
    versions.emplace_back(&p, p.grad.version());
  });
  for (const auto& [p, version] : versions) {
    result.all_final = result.all_final && p->grad.version() == version;
  }
  keep(tape.grad(packed));
  for (const Parameter& p : net.weights) keep(p.grad);
  return result;
}

}  // namespace

TEST_CASE("recompute changes no bit of values and gradients", "[autodiff]") {
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    const Result plain = run(dtype, Recompute::none);
    for (Recompute level : {Recompute::layers, Recompute::nested}) {
      const Result again = run(dtype, level);
      INFO(dtype << " level " << static_cast<int>(level));
      REQUIRE(again.values.size() == plain.values.size());
      for (size_t i = 0; i < plain.values.size(); ++i) {
        INFO("value " << i);
        CHECK((again.values[i] == plain.values[i]));  // too long to print
      }
    }
  }
}

TEST_CASE("recompute announces each parameter of its blocks once, when it is final", "[autodiff]") {
  for (Recompute level : {Recompute::none, Recompute::layers, Recompute::nested}) {
    Result result = run(Dtype::f32, level);
    REQUIRE(result.ready.size() == 3);
    CHECK(result.ready.front() == "w1");
    CHECK(result.all_final);
    std::sort(result.ready.begin(), result.ready.end());
    CHECK(result.ready == std::vector<std::string>{"w0", "w1", "w2"});
  }
}

TEST_CASE("a recomputed block is one node that keeps its inputs", "[autodiff]") {
  const Result plain = run(Dtype::f32, Recompute::none), again = run(Dtype::f32, Recompute::layers);
  CHECK(again.nodes ==
        std::vector<std::string>{"slice", "slice", "recompute", "recompute", "mul", "add"});
  // The packed input and the outputs of both layers.
  CHECK(again.saved_bytes == 4 * (16 * 16 + 2 * 16 * 8));
  CHECK(again.saved_bytes < plain.saved_bytes / 2);
}

TEST_CASE("an input changed before its block runs again is an error", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {3}));
  const Block block = [&](Tape*, std::span<const Var> in) {
    return std::vector<Var>{exp(ctx, in[0])};
  };
  const Var y = recompute(&tape, block, std::span(&x, 1), {})[0];
  fill(ctx, x.value, 2.0);
  CHECK_THROWS_WITH(walk(tape, y, ones(ctx, {3})),
                    "backward: a tensor of shape (3) kept by recompute was changed in place since; "
                    "write to a copy instead");
}

TEST_CASE("a block with several outputs, one of them unused, and one input passed through",
          "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Block block = [&](Tape*, std::span<const Var> in) {
    return std::vector<Var>{exp(ctx, in[0]), scale(ctx, in[0], 7.0), in[0]};
  };
  const auto gradient = [&](bool recomputed) {
    Tape tape(ctx);
    const Var x = tape.leaf(doubles(ctx, {0.5, -1.0}, {2}));
    const std::vector<Var> y =
        recomputed ? recompute(&tape, block, std::span(&x, 1), {}) : block(&tape, {{x}});
    const Var outputs[] = {y[0], y[2]};
    const Tensor gradients[] = {doubles(ctx, {1.0, 2.0}, {2}), doubles(ctx, {10.0, 20.0}, {2})};
    tape.backward(outputs, gradients);
    return to_host<double>(ctx, tape.grad(x));
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("a forgotten value is made again from what is kept instead", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(doubles(ctx, {0.5, -1.0}, {2}));
  const Var w = tape.leaf(doubles(ctx, {2.0, 4.0}, {2}));
  Var h = scale(ctx, x, 3.0);
  const Var y = mul(ctx, h, w);  // keeps h and w
  int runs = 0;
  tape.forget(h.value, x.value, [&](const Tensor& source) {
    ++runs;
    return scale(ctx, source, 3.0).value;
  });
  CHECK(h.value.is_sole_holder());
  CHECK(tape.saved_bytes() == x.value.nbytes() + w.value.nbytes());
  walk(tape, y, doubles(ctx, {1.0, 10.0}, {2}));
  CHECK(runs == 1);
  CHECK(to_host<double>(ctx, tape.grad(w)) == std::vector<double>{1.5, -30.0});
  CHECK(to_host<double>(ctx, tape.grad(x)) == std::vector<double>{6.0, 120.0});
}

TEST_CASE("what is kept for a forgotten value must not change", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, {3})), h = scale(ctx, x, 3.0), y = mul(ctx, h, h);
  tape.forget(h.value, x.value, [&](const Tensor& t) { return scale(ctx, t, 3.0).value; });
  fill(ctx, x.value, 2.0);
  CHECK_THROWS_WITH(walk(tape, y, ones(ctx, {3})),
                    "backward: a tensor of shape (3) kept by mul was changed in place since; "
                    "write to a copy instead");
  CHECK_THROWS_WITH(tape.forget(x.value.slice(0, 0, 1), h.value, {}),
                    "tape: only a whole storage can be forgotten; got 8 bytes of 24");
}

TEST_CASE("without a tape a block just runs", "[autodiff]") {
  const Context ctx = cpu_context(1);
  int runs = 0;
  const Block block = [&](Tape* tape, std::span<const Var> in) {
    ++runs;
    CHECK(tape == nullptr);
    return std::vector<Var>{scale(ctx, in[0], 2.0)};
  };
  const Var x = ones(ctx, {2});
  CHECK(recompute(nullptr, block, std::span(&x, 1), {})[0].tape == nullptr);
  CHECK(runs == 1);
}

TEST_CASE("column sums pass into and out of a recomputed block", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  Var x = tape.leaf(doubles(ctx, {5.0}, {1}));
  x.biased = true;
  bool biased_inside = false;
  Tensor inside;
  const Block block = [&](Tape*, std::span<const Var> in) {
    biased_inside = in[0].biased;
    Var y = pass_sums(in[0], inside);
    y.biased = true;
    return std::vector<Var>{y};
  };
  const Var y = recompute(&tape, block, std::span(&x, 1), {})[0];
  CHECK(y.biased);
  const Tensor dy = ones(ctx, {1}), sums = doubles(ctx, {1.0, 2.0}, {2, 1});
  tape.backward(std::span(&y, 1), std::span(&dy, 1), {}, std::span(&sums, 1));
  CHECK(biased_inside);
  CHECK(to_host<double>(ctx, inside) == std::vector<double>{1.0, 2.0});
  CHECK(to_host<double>(ctx, tape.column_sums(x)) == std::vector<double>{1.0, 2.0});
}
