#pragma once
// Nodes whose backward sums a gradient over its rows on the way must do so where a bias asks for
// it, over the elements that they store, on every device.

#include "core/copy.h"
#include "core/error.h"
#include "core/random.h"
#include "ops/activation_linear/activation_linear.h"
#include "ops/norm_linear/norm_linear.h"
#include "support/catch.h"
#include "support/tolerance.h"

namespace xtrain {

// A gradient [rows, width] as it came, and its column sums.
struct SummedGradient {
  Tensor dy, column_sums;
};

class TakeSumsNode final : public Node {
 public:
  explicit TakeSumsNode(SummedGradient* taken) : taken_(taken) {}
  const char* name() const override { return "take_sums"; }
  void backward(Gradients& g) override {
    taken_->column_sums = g.take_column_sums(0);
    taken_->dy = g.take(0);
    g.give(0, taken_->dy);
  }

 private:
  SummedGradient* taken_;
};

inline Tensor random_matrix(const Context& ctx, const Shape& shape, Dtype dtype, uint64_t site) {
  constexpr size_t kDrawn = 4099;  // are repeated, which takes less time
  const RandomStream stream = random_stream(11, 0, site);
  std::vector<double> values(numel_of(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kDrawn ? random_normal(stream, 0, i) : values[i - kDrawn];
  }
  return cast(ctx, from_host(ctx, values, shape), dtype);
}

// What `node` gives an input of that shape, which does or does not end in a bias.
template <class F>
SummedGradient gradient_through(const Context& ctx, const Shape& shape, Dtype dtype, bool biased,
                                F&& node) {
  SummedGradient taken;
  Tape tape(ctx);
  const Var x = tape.leaf(random_matrix(ctx, shape, dtype, 1));
  Var branch = record<TakeSumsNode>({x}, x.value, &taken);
  branch.biased = biased;
  const Var y = node(branch);
  const Tensor dy = random_matrix(ctx, y.shape(), dtype, 2);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return taken;
}

template <class F>
void check_column_sums(const Context& ctx, const Shape& shape, Dtype dtype, F&& node) {
  const auto doubles = [&](const Tensor& x) {
    return to_host<double>(ctx, cast(ctx, x, Dtype::f64));
  };
  const auto sums_of = [](const std::vector<double>& x, int64_t width) {
    std::vector<double> sums(width, 0.0);
    for (size_t i = 0; i < x.size(); ++i) sums[i % width] += x[i];
    return sums;
  };
  const SummedGradient plain = gradient_through(ctx, shape, dtype, false, node);
  CHECK_FALSE(plain.column_sums.defined());
  const SummedGradient summed = gradient_through(ctx, shape, dtype, true, node);
  REQUIRE(summed.column_sums.defined());
  CHECK(doubles(summed.dy) == doubles(plain.dy));
  CHECK(summed.column_sums.dtype() == accumulator_dtype(dtype));
  REQUIRE(summed.column_sums.rank() == 2);
  const int64_t width = shape[1];
  REQUIRE(summed.column_sums.size(1) == width);
  const std::vector<double> dy = doubles(summed.dy), expected = sums_of(dy, width),
                            got = sums_of(doubles(summed.column_sums), width);
  double largest = 0.0, difference = 0.0;
  for (int64_t i = 0; i < width; ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  CHECK(difference <= tolerance(accumulator_dtype(dtype), shape[0]) * largest);
}

inline void check_column_sums(const Context& ctx) {
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Shape& shape : {Shape{1, 8}, Shape{1300, 8}, Shape{300, 33}, Shape{67, 768},
                               Shape{1100, 1024}, Shape{9, 4096}, Shape{3, 20003}}) {
      INFO(shape << " in " << dtype);
      const Var x = random_matrix(ctx, shape, dtype, 3),
                scale = random_matrix(ctx, {shape[1]}, dtype, 4);
      const Var weight = random_matrix(ctx, {2, shape[1]}, dtype, 5);
      for (NormKind kind : {NormKind::layer, NormKind::rms}) {
        check_column_sums(ctx, shape, dtype, [&](const Var& branch) {
          return add_norm(ctx, x, branch, scale, Var(), kind, 1e-5).normed;
        });
        check_column_sums(ctx, shape, dtype, [&](const Var& branch) {
          Tape& tape = *branch.tape;  // the norm is written again where the weight has a gradient
          return norm_linear(ctx, x, branch, {scale, Var(), tape.leaf(weight.value), Var()}, kind,
                             1e-5)
              .y;
        });
      }
      for (Activation kind : {Activation::gelu_tanh, Activation::relu}) {
        check_column_sums(ctx, shape, dtype, [&](const Var& hidden) {
          Tape& tape = *hidden.tape;
          return activation_linear(ctx, hidden, kind, tape.leaf(weight.value), Var());
        });
      }
    }
  }
}

}  // namespace xtrain
