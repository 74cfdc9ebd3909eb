#pragma once
// Softmax and its logarithm of one row, on any device.

#include <limits>
#include <numeric>
#include <vector>

#include "core/copy.h"
#include "ops/softmax/softmax.h"
#include "support/catch.h"

namespace xtrain {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RowResult {
  std::vector<float> y, dx;
};

// In f32, forward and backward with upstream gradient 1, 2, 3, ...
inline RowResult run_row(const Context& ctx, Var (*function)(const Context&, const Var&),
                         const std::vector<float>& row) {
  const Shape shape{1, static_cast<int64_t>(row.size())};
  std::vector<float> upstream(row.size());
  std::iota(upstream.begin(), upstream.end(), 1.0f);
  Tape tape(ctx);
  const Var x = tape.leaf(from_host(ctx, row, shape));
  const Var y = function(ctx, x);
  const Tensor dy = from_host(ctx, upstream, shape);
  tape.backward(std::span(&y, 1), std::span(&dy, 1));
  return {to_host<float>(ctx, y.value), to_host<float>(ctx, tape.grad(x))};
}

// A row that nothing may be chosen from.
inline void check_row_of_minus_infinity(const Context& ctx, size_t width) {
  const RowResult p = run_row(ctx, softmax, std::vector<float>(width, -kInfinity));
  CHECK(p.y == std::vector<float>(width, 0.0f));
  CHECK(p.dx == std::vector<float>(width, 0.0f));
  const RowResult logs = run_row(ctx, log_softmax, std::vector<float>(width, -kInfinity));
  CHECK(logs.y == std::vector<float>(width, -kInfinity));
  CHECK(logs.dx == std::vector<float>(width, 0.0f));
}

}  // namespace xtrain
