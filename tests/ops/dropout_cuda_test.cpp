#include "core/copy.h"
#include "ops/dropout/dropout.h"
#include "support/catch.h"
#include "support/gpu.h"

using namespace xtrain;

namespace {

Tensor scalar(const Context& ctx, int64_t value) {
  return from_host(ctx, std::vector<int64_t>{value}, {1});
}

// What dropout makes of ones, with step and first sequence in the context's memory.
std::vector<float> drawn(Context ctx, const Shape& shape, const Tensor& step,
                         const Tensor& first_sequence, Dtype dtype) {
  ctx.training = true;
  ctx.random = {
      .seed = 17, .step = step.data<int64_t>(), .first_sequence = first_sequence.data<int64_t>()};
  Tensor x = empty(ctx, shape, dtype);
  fill(ctx, x, 1.0);
  const Tensor y = dropout(ctx, x, {.p = 0.3, .site = 5}).value;
  return to_host<float>(ctx, cast(ctx, y, Dtype::f32));
}

}  // namespace

TEST_CASE("dropout draws the CPU's numbers on the GPU", "[cuda]") {
  const Context& gpu = test_cuda_context();
  const Context cpu = cpu_context(1);
  for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Shape& shape : {Shape{3, 8192}, Shape{3, 8195}, Shape{2, 4}, Shape{5, 3}}) {
      INFO(shape << " in " << dtype);
      CHECK(drawn(gpu, shape, scalar(gpu, 4), scalar(gpu, 1000), dtype) ==
            drawn(cpu, shape, scalar(cpu, 4), scalar(cpu, 1000), dtype));
    }
  }
}

TEST_CASE("dropout reads its step and sequence where they lie when it runs", "[cuda]") {
  const Context& ctx = test_cuda_context();
  Tensor step = scalar(ctx, 1), sequence = scalar(ctx, 0);
  const Shape shape{2, 512};
  const std::vector<float> first = drawn(ctx, shape, step, sequence, Dtype::f32);
  copy(ctx, scalar(ctx, 2), step);
  const std::vector<float> second = drawn(ctx, shape, step, sequence, Dtype::f32);
  CHECK(second != first);
  copy(ctx, scalar(ctx, 1), sequence);
  // The first row now is the sequence that was the second.
  const std::vector<float> moved = drawn(ctx, shape, step, sequence, Dtype::f32);
  CHECK(std::vector<float>(moved.begin(), moved.begin() + 512) ==
        std::vector<float>(second.begin() + 512, second.end()));
}
