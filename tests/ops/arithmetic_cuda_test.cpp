#include "core/copy.h"
#include "ops/arithmetic/arithmetic.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

// Rows of a wider tensor, from column `start`.
Tensor columns(const Context& ctx, const Shape& shape, int64_t start, Dtype dtype) {
  const Shape wide{shape[0], shape[1] + 16};
  const RandomStream stream = random_stream(8, 0, start);
  std::vector<float> values(numel_of(wide));
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(0, i) + 0.5f;
  return cast(ctx, from_host(ctx, values, wide), dtype).slice(1, start, shape[1]);
}

struct Operation {
  const char* name;
  Var (*call)(const Context&, const Var&, const Var&);
};
constexpr Operation kOperations[] = {{"add", add}, {"mul", mul}, {"div", div}};

// What the operation makes of operands that lie where `start` says.
std::vector<double> result(const Context& ctx, const Operation& operation, const Shape& a_shape,
                           const Shape& b_shape, int64_t start, Dtype dtype) {
  const Tensor a = columns(ctx, a_shape, start, dtype), b = columns(ctx, b_shape, 0, dtype);
  return to_host<double>(ctx, cast(ctx, operation.call(ctx, a, b).value, Dtype::f64));
}

}  // namespace

TEST_CASE("arithmetic on the GPU has the CPU's bits wherever the operands lie", "[cuda]") {
  const Context cpu = cpu_context(1);
  const Shape a{9, 64}, odd{9, 37};
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Operation& operation : kOperations) {
      for (int64_t start : {0, 1, 8}) {
        for (const auto& [left, right] :
             {std::pair(a, a), std::pair(a, Shape{1, 64}), std::pair(a, Shape{9, 1}),
              std::pair(odd, Shape{1, 37}), std::pair(Shape{1, 64}, a)}) {
          INFO(operation.name << " of " << left << " and " << right << " in " << dtype << " from "
                              << start);
          CHECK(result(test_cuda_context(), operation, left, right, start, dtype) ==
                result(cpu, operation, left, right, start, dtype));
        }
      }
    }
  }
}

TEST_CASE("a sum of more than 2^31 elements reaches the last ones", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const int64_t n = (int64_t{1} << 31) + 8;
  const Tensor x = zeros(ctx, {n}, Dtype::bf16);
  fill(ctx, x.slice(0, n - 8, 8), 1.0);
  const Tensor y = add(ctx, x, x).value;
  const std::vector<BFloat16> end = to_host<BFloat16>(ctx, contiguous(ctx, y.slice(0, n - 16, 16)));
  for (int i = 0; i < 16; ++i) CHECK(static_cast<float>(end[i]) == (i < 8 ? 0.0f : 2.0f));
}
