// The forward kernel of flash attention by mma.sync, which other tests reach only where wgmma is
// not to be had: masks, scales, the shift of its softmax and the order of its blocks.

#include "ops/attention_examples_cuda.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr FlashKernel kMma = FlashKernel::mma, kFfma = FlashKernel::ffma;
constexpr int64_t kHeadDims[] = {32, 64, 96, 128, 256};

// Everything around inputs and results being NaN, against the kernels in f64, which
// attention_cuda_test.cpp holds against the CPU.
void check_forward(const Example& e, double sign = 1.0) {
  INFO(e << ", sign of the scale " << sign);
  const Context& ctx = test_cuda_context();
  const Inputs in = random_inputs(e), moved = on_gpu(in, Dtype::bf16);
  const AttentionOptions options = options_of(ctx, e);
  const TrainingStep training(ctx);
  Calls<double> wide(training.ctx, on_gpu(in, Dtype::f64), options);
  const Inputs poisoned{surrounded_by_nan(ctx, moved.q), surrounded_by_nan(ctx, moved.k),
                        surrounded_by_nan(ctx, moved.v), moved.dy};
  poison_unseen(ctx, poisoned, e);
  poison_pool(ctx);
  Calls<BFloat16> calls(training.ctx, poisoned, options);
  REQUIRE(mma_supports(Cuda{ctx}, calls.forward));
  for (FlashProblem* p : {&wide.forward.problem, &calls.forward.problem}) p->scale *= sign;
  for (FlashProblem* p : {&wide.backward.problem, &calls.backward.problem}) p->scale *= sign;
  const std::vector<double> oracle = wide.run(ctx, kFfma, kFfma).o;
  const std::vector<double> got = calls.run(ctx, kMma, kMma).o;
  CHECK(norm_error(got, oracle, norm_of(as_doubles(cpu_context(1), in.dy))) <= kFlashOutputNorm);
  CHECK(largest_difference(as_doubles(ctx, calls.log_sum), as_doubles(ctx, wide.log_sum)) <=
        kLogSumTolerance);
}

}  // namespace

TEST_CASE("flash attention by mma is right for every length, mask and scale", "[cuda]") {
  for (int64_t head_dim : kHeadDims) {
    for (int64_t length : {1, 63, 64, 65, 127, 128, 129, 1000}) {
      Example e{.queries = length, .keys = length, .heads = 8, .kv_heads = 2};
      e.head_dim = head_dim;
      check_forward(e);
      check_forward(e, -1.0);
      e.dropout = 0.3;
      check_forward(e);
    }
    for (const Example& e : mask_examples(head_dim)) {
      if (e.queries > 0 && e.keys > 0 && e.batch > 0) check_forward(e);
    }
    check_forward({.queries = 300, .keys = 300, .head_dim = head_dim, .magnitude = 10.0});
  }
}

// A row's shift moves with every tile, with some, or with the first one that it sees.
TEST_CASE("flash attention by mma is right where scores grow or fall along the keys", "[cuda]") {
  for (int64_t head_dim : kHeadDims) {
    for (double rise : {12.0, 3.0, -12.0}) {
      Example e{.queries = 300, .keys = 300, .head_dim = head_dim, .rise = rise};
      check_forward(e);
      check_forward(e, -1.0);
      e.causal = false;
      check_forward(e);
      e.window = 100;
      check_forward(e);
    }
  }
}

// Small enough for a sanitizer that follows every access.
TEST_CASE("flash attention by mma over a few tiles is right", "[cuda]") {
  for (int64_t head_dim : kHeadDims) {
    Example e{.batch = 1, .queries = 200, .keys = 200, .head_dim = head_dim};
    check_forward(e);
    e.documents = true;
    check_forward(e);
  }
}

// 70 MiB of keys and values.
TEST_CASE("flash attention by mma is right where heads are more than begin together", "[cuda]") {
  check_forward(
      {.batch = 3, .queries = 130, .keys = 1000, .heads = 48, .kv_heads = 48, .head_dim = 128});
}
