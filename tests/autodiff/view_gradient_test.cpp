#include <limits>

#include "autodiff/grad_check.h"
#include "ops/elementary/elementary.h"
#include "ops/view/view.h"
#include "support/catch.h"
#include "support/tape_nodes.h"
#include "support/tolerance.h"

using namespace xtrain;
using Doubles = std::vector<double>;

namespace {

// Gradients that are written into place and gradients that are given take different ways through
// the tape; both must arrive.
using Scale = Var (*)(const Context&, const Var&, double);

Var given(const Context& ctx, const Var& x, double factor) {
  return scale(ctx, x, factor);
}
Var written(const Context& ctx, const Var& x, double factor) {
  return written_scale(ctx, x, factor);
}
constexpr Scale kScales[] = {given, written};

// A context whose next blocks of a few common sizes hold NaN.
Context dirty_context() {
  const Context ctx = cpu_context(1);
  std::vector<Tensor> dirt;
  for (int64_t n : {1, 2, 4, 6, 8, 12, 24, 64, 96}) {
    for (int copies = 0; copies < 4; ++copies) {
      dirt.push_back(empty(ctx, {n}, Dtype::f64));
      fill(ctx, dirt.back(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  return ctx;
}

// d(sum of the outputs)/dx.
template <class Function>
Doubles gradient(const Context& ctx, const Shape& shape, Function&& function) {
  Tape tape(ctx);
  const Var x = tape.leaf(ones(ctx, shape));
  const std::vector<Var> outputs = function(x);
  std::vector<Tensor> gradients;
  for (const Var& y : outputs) gradients.push_back(ones(ctx, y.shape()));
  tape.backward(outputs, gradients);
  return to_host<double>(ctx, tape.grad(x));
}

using Vars = std::vector<Var>;

}  // namespace

TEST_CASE("what no slice uses has gradient 0, whatever the memory held", "[autodiff]") {
  for (Scale f : kScales) {
    const Context ctx = dirty_context();
    CHECK(gradient(ctx, {6}, [&](const Var& x) {
            return Vars{f(ctx, slice(ctx, x, 0, 1, 1), 2.0), f(ctx, slice(ctx, x, 0, 3, 2), 3.0)};
          }) == Doubles{0, 2, 0, 3, 3, 0});
    CHECK(gradient(ctx, {2, 4}, [&](const Var& x) {
            return Vars{f(ctx, slice(ctx, x, 1, 2, 1), 2.0)};
          }) == Doubles{0, 0, 2, 0, 0, 0, 2, 0});
  }
}

TEST_CASE("slices that overlap add up", "[autodiff]") {
  for (Scale f : kScales) {
    for (Scale g : kScales) {
      const Context ctx = dirty_context();
      CHECK(gradient(ctx, {6}, [&](const Var& x) {
              return Vars{f(ctx, slice(ctx, x, 0, 0, 3), 2.0), g(ctx, slice(ctx, x, 0, 2, 3), 3.0)};
            }) == Doubles{2, 2, 5, 3, 3, 0});
      CHECK(gradient(ctx, {2, 2}, [&](const Var& x) {
              return Vars{f(ctx, slice(ctx, x, 0, 0, 1), 2.0), g(ctx, slice(ctx, x, 1, 1, 1), 3.0)};
            }) == Doubles{2, 5, 0, 3});
    }
  }
}

TEST_CASE("a view used twice and a view beside its whole add up", "[autodiff]") {
  for (Scale f : kScales) {
    for (Scale g : kScales) {
      const Context ctx = dirty_context();
      CHECK(gradient(ctx, {4}, [&](const Var& x) {
              const Var part = slice(ctx, x, 0, 1, 2);
              return Vars{f(ctx, part, 2.0), g(ctx, part, 3.0)};
            }) == Doubles{0, 5, 5, 0});
      CHECK(gradient(ctx, {4}, [&](const Var& x) {
              const Var part = slice(ctx, x, 0, 1, 2);
              return Vars{f(ctx, x, 10.0), g(ctx, part, 3.0), f(ctx, x, 100.0)};
            }) == Doubles{110, 113, 113, 110});
      CHECK(gradient(ctx, {4}, [&](const Var& x) {
              return Vars{f(ctx, reshape(ctx, x, {2, 2}), 2.0),
                          g(ctx, reshape(ctx, x, {4, 1}), 3.0),
                          f(ctx, slice(ctx, x, 0, 3, 1), 10.0)};
            }) == Doubles{5, 5, 5, 15});
    }
  }
}

TEST_CASE("views of views reach their base", "[autodiff]") {
  for (Scale f : kScales) {
    for (Scale g : kScales) {
      const Context ctx = dirty_context();
      CHECK(gradient(ctx, {2, 3}, [&](const Var& x) {
              const Var column = slice(ctx, transpose(ctx, x, 0, 1), 0, 1, 2);  // (2, 2)
              const Var flat = reshape(ctx, slice(ctx, column, 1, 0, 1), {2});
              return Vars{f(ctx, flat, 2.0), g(ctx, slice(ctx, column, 0, 1, 1), 3.0)};
            }) == Doubles{0, 2, 5, 0, 0, 3});
      CHECK(gradient(ctx, {2, 6}, [&](const Var& x) {
              const std::vector<Var> parts = split(ctx, x, 1, {2, 4});
              const Var heads = split_heads(ctx, reshape(ctx, parts[1], {1, 2, 4}), 2);
              return Vars{f(ctx, parts[0], 2.0), g(ctx, slice(ctx, heads, 2, 1, 1), 3.0)};
            }) == Doubles{2, 2, 0, 0, 3, 3, 2, 2, 0, 0, 3, 3});
      CHECK(gradient(ctx, {4}, [&](const Var& x) {  // beside a direct use of the inner view
              const Var part = slice(ctx, x, 0, 0, 3), inner = slice(ctx, part, 0, 1, 2);
              return Vars{f(ctx, part, 2.0), g(ctx, inner, 3.0), f(ctx, part, 10.0)};
            }) == Doubles{12, 15, 15, 0});
    }
  }
}

TEST_CASE("two views of a scalar add up", "[autodiff]") {
  for (Scale f : kScales) {
    const Context ctx = dirty_context();
    CHECK(gradient(ctx, {}, [&](const Var& x) {
            return Vars{f(ctx, reshape(ctx, x, {1}), 2.0), f(ctx, reshape(ctx, x, {1, 1}), 3.0)};
          }) == Doubles{5});
  }
}

TEST_CASE("slices of nothing leave gradients of the right shape", "[autodiff]") {
  for (Scale f : kScales) {
    const Context ctx = dirty_context();
    CHECK(gradient(ctx, {4}, [&](const Var& x) {
            return Vars{f(ctx, slice(ctx, x, 0, 2, 0), 2.0), f(ctx, slice(ctx, x, 0, 1, 1), 3.0)};
          }) == Doubles{0, 3, 0, 0});
    CHECK(gradient(ctx, {4}, [&](const Var& x) {
            return Vars{f(ctx, slice(ctx, x, 0, 2, 2), 2.0), f(ctx, slice(ctx, x, 0, 2, 0), 3.0)};
          }) == Doubles{0, 0, 2, 2});
    CHECK(gradient(ctx, {0, 3}, [&](const Var& x) {
            return Vars{f(ctx, slice(ctx, x, 1, 0, 2), 2.0), f(ctx, slice(ctx, x, 1, 2, 1), 3.0)};
          }).empty());
  }
}

TEST_CASE("views of a parameter fill its gradient before it is announced", "[autodiff]") {
  for (Scale f : kScales) {
    const Context ctx = dirty_context();
    Parameter w = make_parameter("w", ones(ctx, {4, 2}));
    Doubles at_call;
    const auto run = [&] {
      Tape tape(ctx);
      const Var whole = tape.parameter(w);
      const Var outputs[] = {f(ctx, slice(ctx, whole, 0, 0, 1), 2.0),
                             f(ctx, transpose(ctx, slice(ctx, whole, 0, 2, 2), 0, 1), 3.0)};
      const Tensor gradients[] = {ones(ctx, {1, 2}), doubles(ctx, {1, 2, 3, 4}, {2, 2})};
      int calls = 0;
      tape.backward(outputs, gradients, [&](Parameter& p) {
        ++calls;
        at_call = to_host<double>(ctx, p.grad);
      });
      CHECK(calls == 1);
    };
    run();
    CHECK(at_call == Doubles{2, 2, 0, 0, 3, 9, 6, 12});
    run();  // a second tape adds
    CHECK(at_call == Doubles{4, 4, 0, 0, 6, 18, 12, 24});
  }
}

TEST_CASE("the gradients of disjoint slices are written into one buffer", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  Seen whole, left, right;
  const Var x = tape.leaf(ones(ctx, {2, 6}));
  const std::vector<Var> parts = split(ctx, watch(x, whole), 1, {2, 4});
  const Var outputs[] = {written_scale(ctx, parts[0], 2.0, &left),
                         written_scale(ctx, transpose(ctx, parts[1], 0, 1), 3.0, &right)};
  const Tensor gradients[] = {ones(ctx, {2, 2}), ones(ctx, {4, 2})};
  tape.backward(outputs, gradients);
  CHECK(whole.dy.shares_storage(left.target));
  CHECK(whole.dy.shares_storage(right.target));
  CHECK(whole.dy.is_contiguous());
  CHECK(to_host<double>(ctx, whole.dy) == Doubles{2, 2, 3, 3, 3, 3, 2, 2, 3, 3, 3, 3});
}

TEST_CASE("gradients of slices that lie elsewhere are each written once into the base's",
          "[autodiff]") {
  const Context ctx = cpu_context(1);
  const auto writes = [&](std::span<const Scale> scales, const std::vector<View>& slices) {
    Tape tape(ctx);
    Seen whole;
    const Var x = watch(tape.leaf(ones(ctx, {2, 6})), whole);
    std::vector<Var> outputs;
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < slices.size(); ++i) {
      const Var part = slice(ctx, x, slices[i].dim, slices[i].start, slices[i].length);
      outputs.push_back(scales[i](ctx, part, 2.0));
      gradients.push_back(ones(ctx, part.shape()));
    }
    tape.backward(outputs, gradients);
    return whole.dy.version();
  };
  for (const Scale f : kScales) {
    for (const Scale g : kScales) {
      const Scale scales[] = {f, g};
      CHECK(writes(scales, {View::sliced(1, 0, 2), View::sliced(1, 2, 4)}) == 2);
      CHECK(writes(scales, {View::sliced(1, 1, 2), View::sliced(1, 4, 2)}) == 4);  // and two holes
      CHECK(writes(scales, {View::sliced(1, 0, 4), View::sliced(1, 2, 4)}) == 3);  // and one hole
    }
  }
}

TEST_CASE("a compact copy's gradient is written once, where its source's lies", "[autodiff]") {
  const Context ctx = cpu_context(1);
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    INFO(dtype);
    Tape tape(ctx);
    Seen whole, left, right;
    const Var x = tape.leaf(ones(ctx, {2, 3, 6}, dtype), dtype);
    const std::vector<Var> parts = split(ctx, watch(x, whole), 2, {2, 4});
    const Var copied = compact(ctx, parts[1]);
    CHECK(copied.value.is_contiguous());
    CHECK_FALSE(copied.value.shares_storage(x.value));
    const Var outputs[] = {written_scale(ctx, parts[0], 2.0, &left),
                           written_scale(ctx, split_heads(ctx, copied, 2), 3.0, &right)};
    const Tensor gradients[] = {ones(ctx, {2, 3, 2}, dtype), ones(ctx, {2, 3, 2, 2}, dtype)};
    tape.backward(outputs, gradients);
    CHECK(whole.dy.shares_storage(left.target));
    CHECK(whole.dy.shares_storage(right.target));
    CHECK(right.target.strides() == Strides{18, 6, 2, 1});
    CHECK(whole.dy.version() == 2);  // writes: one a target
    Doubles expected;
    for (int token = 0; token < 6; ++token) {
      for (const double value : {2, 2, 3, 3, 3, 3}) expected.push_back(value);
    }
    CHECK(to_host<double>(ctx, cast(ctx, whole.dy, Dtype::f64)) == expected);
  }
}

TEST_CASE("a compact copy of what is contiguous is no copy", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const Var x = ones(ctx, {2, 3});
  CHECK(compact(ctx, x).value.shares_storage(x.value));
}

TEST_CASE("a reshape's gradient is its base's, without a copy", "[autodiff]") {
  const Context ctx = cpu_context(1);
  Tape tape(ctx);
  Seen seen;
  const Var x = tape.leaf(ones(ctx, {2, 6}));
  const Var y = transpose(ctx, reshape(ctx, watch(x, seen), {3, 4}), 0, 1);
  const Tensor dy = ones(ctx, {4, 3});
  walk(tape, y, dy);
  CHECK(seen.dy.shape() == Shape{2, 6});
  // The transposed gradient has to be made contiguous to take the base's shape.
  CHECK_FALSE(seen.dy.shares_storage(dy));
  Tape second(ctx);
  const Var z = second.leaf(ones(ctx, {2, 6}));
  walk(second, reshape(ctx, watch(z, seen), {3, 4}), dy.reshape({3, 4}));
  CHECK(seen.dy.shares_storage(dy));
}

TEST_CASE("a node below a view sees the gradients of all views", "[autodiff]") {
  const Context ctx = cpu_context(1);
  const auto function = [&](Tape*, std::span<const Var> in) {
    const Var packed = exp(ctx, in[0]);
    const std::vector<Var> parts = split(ctx, packed, 1, {2, 2, 2});
    const Var product = mul(ctx, parts[0], written_scale(ctx, parts[1], 0.5));
    return Vars{add(ctx, product, sigmoid(ctx, parts[2])), slice(ctx, packed, 0, 1, 1)};
  };
  const Tensor inputs[] = {
      doubles(ctx, {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 1.0, 0.2, 0.3}, {2, 6})};
  CHECK(grad_check(ctx, function, inputs)[0].relative_error <= kGradCheckTolerance);
}
