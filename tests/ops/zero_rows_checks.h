#pragma once
// A head with rows of zeros behind it, on any device.

#include <limits>

#include "autodiff/parameter.h"
#include "core/copy.h"
#include "core/error.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "support/catch.h"
#include "support/doubles.h"

namespace xtrain {

struct HeadGradients {
  std::vector<double> loss, dx, dweight;
  std::vector<double> values_behind, gradient_behind;  // of the zero rows
};

inline constexpr int64_t kHeadClasses = 50, kHeadWidth = 8;

// Of two backward passes whose gradients add up. `more` rows lie behind those of the classes; of
// these `zero_rows` are Parameter::zero_rows, the others the head's own. NaN lies where the
// gradients go.
inline HeadGradients head_gradients(const Context& ctx, Dtype dtype, int64_t more,
                                    int64_t zero_rows, int64_t chunk_rows) {
  constexpr int64_t kRows = 6;
  ParameterSet set;
  const Shape shape{kHeadClasses + more - zero_rows, kHeadWidth};
  Parameter& head = set.add("head", shape, ParameterKind::embedding, 0.0, 1.0);
  head.zero_rows = zero_rows;
  Parameter& neighbour = set.add("first", {3}, ParameterKind::vector, 0.0, 1.0);
  set.allocate(ctx, dtype);
  fill(ctx, head.grad, std::numeric_limits<double>::quiet_NaN());
  fill(ctx, neighbour.value, 7.0);
  fill(ctx, neighbour.grad, 7.0);
  const Tensor classes = head.value.slice(0, 0, kHeadClasses);
  copy(ctx, initial_value(ctx, head, 1).slice(0, 0, kHeadClasses), classes);
  Parameter input;
  input.name = "x";
  input.shape = {kRows, kHeadWidth};
  input.initial_std = 1.0;
  const Tensor x = cast(ctx, initial_value(ctx, input, 2), dtype);
  const Tensor targets =
      from_host(ctx, std::vector<int32_t>{0, 49, kIgnoreIndex, 7, 7, 31}, {kRows});
  HeadGradients result;
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape(ctx);
    const Var leaf = tape.leaf(x);
    const Loss loss = linear_cross_entropy(ctx, leaf, tape.parameter(head), targets, kHeadClasses,
                                           kIgnoreIndex, chunk_rows, zero_rows);
    tape.backward(loss.sum);
    result.loss = as_doubles(ctx, loss.sum.value);
    result.dx = as_doubles(ctx, tape.grad(leaf));
  }
  for (const Tensor& other : {neighbour.value, neighbour.grad}) {
    CHECK(as_doubles(ctx, other) == std::vector<double>(3, 7.0));
  }
  result.dweight = as_doubles(ctx, head.grad.slice(0, 0, kHeadClasses));
  const auto rows_behind = [&](const Tensor& rows) {
    return as_doubles(ctx, rows.with_rows_behind(zero_rows).slice(0, kHeadClasses, more));
  };
  result.values_behind = rows_behind(head.value);
  result.gradient_behind = rows_behind(head.grad);
  return result;
}

// Products with a head that has `zero_rows` behind it are those with one that has as many rows of
// padding, and leave the rows zero.
inline void check_zero_rows(const Context& ctx, int64_t zero_rows) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const int64_t chunk_rows : {0, 4}) {
      INFO(text(dtype) << ", chunks of " << chunk_rows);
      const HeadGradients padding = head_gradients(ctx, dtype, zero_rows, 0, chunk_rows);
      const HeadGradients behind = head_gradients(ctx, dtype, zero_rows, zero_rows, chunk_rows);
      const std::vector<double> zeros_behind(zero_rows * kHeadWidth, 0.0);
      CHECK(behind.values_behind == zeros_behind);
      CHECK(behind.gradient_behind == zeros_behind);
      CHECK(behind.dweight == padding.dweight);
      CHECK(behind.dx == padding.dx);
      CHECK(behind.loss == padding.loss);
      CHECK(behind.dweight[kHeadWidth * 49] != 0.0);
    }
  }
}

}  // namespace xtrain
