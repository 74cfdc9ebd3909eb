// The kernels of flash attention built on wgmma: what they take, how exact they are, and that
// nothing around them changes a bit.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ops/attention_examples_cuda.h"
#include "ops/beside_test_kernels.h"
#include "support/catch.h"
#include "support/gpu.h"
#include "support/op_tests.h"
#include "support/tolerance.h"

using namespace xtrain;

namespace {

constexpr FlashKernel kWgmma = FlashKernel::wgmma;
constexpr int64_t kHeadDims[] = {32, 64, 96, 128, 256};

struct Errors {
  double o = 0.0, dq = 0.0, dk = 0.0, dv = 0.0, log_sum = 0.0;

  // NaN stays.
  void keep_worst(const Errors& other) {
    const auto keep = [](double& mine, double its) {
      if (!(its <= mine)) mine = its;
    };
    keep(o, other.o);
    keep(dq, other.dq);
    keep(dk, other.dk);
    keep(dv, other.dv);
    keep(log_sum, other.log_sum);
  }
};

// By wgmma, everything around inputs and results being NaN, against the kernels in f64, which
// attention_cuda_test.cpp holds against the CPU.
Errors errors_of(const Example& e) {
  const Context& ctx = test_cuda_context();
  const Inputs in = random_inputs(e);
  const AttentionOptions options = options_of(ctx, e);
  Calls<double> wide(ctx, on_gpu(in, Dtype::f64), options);
  const Results oracle = wide.run(ctx, FlashKernel::ffma, FlashKernel::ffma);
  const Inputs moved = on_gpu(in, Dtype::bf16);
  const WalledTensor dy_in_nan(ctx, moved.dy.shape(), Dtype::bf16);
  fill(ctx, dy_in_nan.memory, kNaN);
  copy(ctx, moved.dy, dy_in_nan.inside);
  const Inputs poisoned{surrounded_by_nan(ctx, moved.q), surrounded_by_nan(ctx, moved.k),
                        surrounded_by_nan(ctx, moved.v), dy_in_nan.inside};
  poison_unseen(ctx, poisoned, e);
  poison_pool(ctx);
  Calls<BFloat16> calls(ctx, poisoned, options);
  CHECK(flash_kernel(Cuda{ctx}, calls.backward) == kWgmma);
  const Results got = calls.run(ctx, kWgmma, kWgmma);
  const double dy = norm_of(as_doubles(cpu_context(1), in.dy));
  return Errors{norm_error(got.o, oracle.o, dy), norm_error(got.dq, oracle.dq, dy),
                norm_error(got.dk, oracle.dk, dy), norm_error(got.dv, oracle.dv, dy),
                largest_difference(as_doubles(ctx, calls.log_sum), as_doubles(ctx, wide.log_sum))};
}

std::vector<Example> shape_matrix(int64_t head_dim) {
  std::vector<Example> examples;
  const auto add = [&](Example e) {
    e.head_dim = head_dim;
    examples.push_back(e);
  };
  for (int64_t length : {1, 7, 63, 64, 65, 127, 128, 129, 1000}) {
    for (int64_t group : {1, 4, 8}) {
      const int64_t kv_heads = group == 8 ? 1 : 2;
      add({.queries = length, .keys = length, .heads = group * kv_heads, .kv_heads = kv_heads});
    }
    add({.what = "no mask", .queries = length, .keys = length, .causal = false});
  }
  for (int64_t length : {3, 130, 257}) add({.queries = length, .keys = length});
  add({.what = "long", .batch = 1, .queries = 4096, .keys = 4096});
  add({.what = "long, no mask", .batch = 1, .queries = 4096, .keys = 4096, .causal = false});
  if (head_dim == 64 || head_dim == 128) {
    add({.what = "long, grouped", .batch = 1, .queries = 4096, .keys = 4096, .heads = 8});
  }
  for (int64_t length : {129, 1000}) {
    add({.what = "large scores", .queries = length, .keys = length, .magnitude = 10.0});
    add({.what = "equal keys", .queries = length, .keys = length, .equal_keys = true});
  }
  add({.what = "fewer queries", .queries = 129, .keys = 1000});
  add({.what = "more queries", .queries = 1000, .keys = 129});
  add({.what = "key lengths", .queries = 500, .keys = 500, .key_length = {500, 333}});
  add({.what = "long windows", .queries = 1500, .keys = 1500, .window = 300});
  // More tiles than multiprocessors, so that blocks work on several of them.
  add({.what = "many heads", .batch = 3, .queries = 400, .keys = 400, .heads = 48, .kv_heads = 6});
  // So many that a block sums over all heads of a group.
  add({.what = "many groups",
       .batch = 3,
       .queries = 500,
       .keys = 500,
       .heads = 24,
       .kv_heads = 12});
  for (const Example& e : mask_examples(head_dim)) {
    if (e.queries > 0 && e.keys > 0 && e.batch > 0) add(e);
  }
  return examples;
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("the wgmma kernels of flash attention refuse what they cannot do", "[cuda]") {
  const Context& ctx = test_cuda_context();
  const Cuda cuda{ctx};
  const Example e{.queries = 70, .keys = 70};
  const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
  Calls<BFloat16> calls(ctx, in, options_of(ctx, e));
  CHECK(wgmma_obstacle(cuda, calls.forward).empty() == gpu_has_wgmma());
  CHECK(wgmma_obstacle(cuda, calls.backward).empty() == gpu_has_wgmma());
  const auto check_refused = [&](const std::string& need, auto change) {
    FlashForward<BFloat16> forward = calls.forward;
    FlashBackward<BFloat16> backward = calls.backward;
    change(forward.problem);
    change(backward.problem);
    const std::string wanted = gpu_has_wgmma() ? need : "a GPU of compute capability 9.0";
    for (const std::string& error : {error_of([&] { wgmma_forward(cuda, forward); }),
                                     error_of([&] { wgmma_backward(cuda, backward); })}) {
      INFO(error);
      CHECK(error.find("flash attention by wgmma needs " + wanted) == 0);
      CHECK(error.find("; call attention_flash, which takes a kernel that fits") < error.size());
    }
    CHECK(flash_kernel(cuda, forward) != kWgmma);
    CHECK(flash_kernel(cuda, backward) != kWgmma);
  };
  check_refused("no dropout; got p = 0.3", [](FlashProblem& p) {
    p.drops = true;
    p.dropout.dropout.p = 0.3;
  });
  check_refused("a scale of 1e-30 or more; got -0.5", [](FlashProblem& p) { p.scale = -0.5; });
  check_refused("head_dim 32, 64, 96, 128 or 256; got 80",
                [](FlashProblem& p) { p.sizes.head_dim = 80; });
  check_refused(
      "positions that 32 bits can number; got 2 sequences of 2 heads, 70 queries, 2147483648",
      [](FlashProblem& p) { p.sizes.keys = int64_t{1} << 31; });
  check_refused(
      "tensors that are not empty, with every row at a multiple of 16 bytes; got [2, 70, 1, 64]"
      " with strides 4480, 65, 64 at 0x",
      [](FlashProblem& p) { p.k.time += 1; });
  check_refused(
      "tensors that are not empty, with every row at a multiple of 16 bytes; got [2, 0, 1, 64]",
      [](FlashProblem& p) { p.sizes.keys = 0; });
}

TEST_CASE("flash attention by wgmma is as exact as bf16 allows, whatever lies around its tensors",
          "[cuda]") {
  if (!gpu_has_wgmma()) return;
  for (int64_t head_dim : kHeadDims) {
    Errors worst;
    const std::vector<Example> examples = shape_matrix(head_dim);
    for (const Example& e : examples) {
      INFO(e);
      const Errors errors = errors_of(e);
      CHECK(errors.o <= kFlashOutputNorm);
      CHECK(errors.dq <= kFlashGradientNorm);
      CHECK(errors.dk <= kFlashGradientNorm);
      CHECK(errors.dv <= kFlashGradientNorm);
      CHECK(errors.log_sum <= kLogSumTolerance);
      worst.keep_worst(errors);
    }
    // Read by tools/gpu_report.py.
    std::printf("errors head_dim %d shapes %d o %.2e dq %.2e dk %.2e dv %.2e log_sum %.2e\n",
                static_cast<int>(head_dim), static_cast<int>(examples.size()), worst.o, worst.dq,
                worst.dk, worst.dv, worst.log_sum);
  }
  std::fflush(stdout);
}

// A query that sees one key: p is 1, whatever the score is.
TEST_CASE("flash attention by wgmma gives the first query of a causal mask no gradient", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context& ctx = test_cuda_context();
  for (int64_t head_dim : kHeadDims) {
    const Example e{.queries = 200, .keys = 200, .head_dim = head_dim};
    INFO(e);
    Calls<BFloat16> calls(ctx, random_inputs_on_gpu(e, Dtype::bf16), options_of(ctx, e));
    calls.run(ctx, kWgmma, kWgmma);
    for (const double x : as_doubles(ctx, calls.dq.slice(1, 0, 1))) CHECK(std::abs(x) <= 1e-4);
    CHECK(norm_of(as_doubles(ctx, calls.dq.slice(1, 1, 1))) > 1e-2);
  }
}

// Small enough for a sanitizer that follows every access.
TEST_CASE("flash attention by wgmma over a few tiles is right", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context cpu = cpu_context(0), &ctx = test_cuda_context();
  for (int64_t head_dim : kHeadDims) {
    for (Example e : {Example{.what = "causal"}, Example{.what = "documents", .documents = true}}) {
      e.batch = 1;
      e.queries = e.keys = 450;
      e.head_dim = head_dim;
      INFO(e);
      const Inputs in = random_inputs(e);
      Calls<BFloat16> calls(ctx, on_gpu(in, Dtype::bf16), options_of(ctx, e));
      const Results oracle = run(cpu, in, options_of(cpu, e), AttentionKind::flash);
      check_close(calls.run(ctx, kWgmma, kWgmma), oracle, tolerance(Dtype::bf16, e.reduction()));
    }
  }
}

TEST_CASE("flash attention by wgmma is right where many tiles follow each other", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context cpu = cpu_context(0), &ctx = test_cuda_context();
  std::vector<Example> examples;
  for (int64_t head_dim : kHeadDims) {
    for (int64_t length : {1, 127, 128, 191, 193, 1000}) {
      examples.push_back({.queries = length, .keys = length, .head_dim = head_dim});
    }
    for (Example e : mask_examples(head_dim)) {
      if (e.queries == 0 || e.keys == 0 || e.batch == 0) continue;
      examples.push_back(e);
    }
    // More tiles than multiprocessors, so that blocks work on several of them.
    examples.push_back({.what = "many heads",
                        .batch = 3,
                        .queries = 400,
                        .keys = 400,
                        .heads = 48,
                        .kv_heads = 6,
                        .head_dim = head_dim});
    examples.push_back({.what = "long windows",
                        .queries = 1500,
                        .keys = 1500,
                        .head_dim = head_dim,
                        .window = 300});
  }
  examples.push_back({.what = "long", .batch = 1, .queries = 4096, .keys = 4096});
  for (const Example& e : examples) {
    INFO(e);
    const Inputs in = random_inputs(e), moved = on_gpu(in, Dtype::bf16);
    const AttentionOptions options = options_of(ctx, e);
    Calls<BFloat16> calls(ctx, moved, options);
    const Results got = calls.run(ctx, kWgmma, kWgmma);
    const std::vector<double> log_sum = as_doubles(ctx, calls.log_sum);
    const Results oracle = run(cpu, in, options_of(cpu, e), AttentionKind::flash);
    check_close(got, oracle, tolerance(Dtype::bf16, e.reduction()));
    // By the other units, from the same numbers in f32.
    Calls<float> f32(ctx, on_gpu(in, Dtype::f32), options);
    f32.run(ctx, FlashKernel::ffma, FlashKernel::ffma);
    const std::vector<double> expected = as_doubles(ctx, f32.log_sum);
    int wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const bool same = log_sum[i] == expected[i];  // infinities
      wrong += !same && !(std::abs(log_sum[i] - expected[i]) <= kLogSumTolerance);
    }
    CHECK(wrong == 0);
  }
}

// The other kernels take multiprocessors away for a while, so blocks begin in another order each
// time and get other tiles.
TEST_CASE("flash attention by wgmma gives the same bits a thousand times beside other kernels",
          "[cuda]") {
  if (!gpu_has_wgmma()) return;
  constexpr int kRuns = 1000;
  constexpr int64_t kLongest = 60000;  // nanoseconds
  const Context &ctx = test_cuda_context(), beside = cuda_context(0);
  for (int64_t head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    Example e{.batch = 4, .queries = 700, .keys = 700, .heads = 16, .kv_heads = 4};
    e.head_dim = head_dim;
    const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
    Calls<BFloat16> calls(ctx, in, options_of(ctx, e)), first(ctx, in, options_of(ctx, e));
    Calls<BFloat16> others(beside, in, options_of(beside, e));
    first.run(ctx, kWgmma, kWgmma);

    const GpuSpan no_span;
    std::vector<int64_t> empty_spans;
    for (int i = 0; i < 2 * kRuns; ++i) {
      empty_spans.insert(empty_spans.end(), {no_span.first, no_span.last});
    }
    Tensor spans = from_host(ctx, empty_spans, {2 * kRuns, 2});
    Tensor different = from_host(ctx, std::vector<int64_t>{0}, {1});
    GpuSpan* span = reinterpret_cast<GpuSpan*>(spans.mutable_data<int64_t>());
    int64_t* count = different.mutable_data<int64_t>();
    ctx.queue->synchronize();
    for (int i = 0; i < kRuns; ++i) {
      occupy_gpu(Cuda{beside}, 1 + i * 37 % 131, kLongest, i, span + 2 * i);
      wgmma_forward(Cuda{beside}, others.forward);
      note_moment(Cuda{ctx}, span + 2 * i + 1);
      calls.compute(ctx, kWgmma, kWgmma);
      note_moment(Cuda{ctx}, span + 2 * i + 1);
      for (size_t r = 0; r < calls.results.size(); ++r) {
        count_differences(Cuda{ctx}, calls.results[r].inside, first.results[r].inside, count);
      }
      ctx.queue->synchronize();
      beside.queue->synchronize();
    }
    CHECK(to_host<int64_t>(ctx, different).front() == 0);
    const std::vector<int64_t> times = to_host<int64_t>(ctx, spans);
    int side_by_side = 0;
    for (int i = 0; i < kRuns; ++i) {
      const int64_t* t = &times[4 * i];
      side_by_side += GpuSpan{t[0], t[1]}.overlaps(GpuSpan{t[2], t[3]});
    }
    CHECK(side_by_side > kRuns / 2);
    // A changed element would be seen.
    fill(ctx, calls.o.reshape({calls.o.numel()}).slice(0, 12345, 1), 0.0);
    count_differences(Cuda{ctx}, calls.results[0].inside, first.results[0].inside, count);
    CHECK(to_host<int64_t>(ctx, different).front() > 0);
  }
}

TEST_CASE("flash attention on the GPU needs memory in proportion to the length of the sequence",
          "[cuda]") {
  const Context& ctx = test_cuda_context();
  // Beyond the inputs, forward and backward.
  const auto extra_bytes = [&](int64_t length, AttentionKind kind) {
    const Example e{.batch = 1, .queries = length, .keys = length};
    const Inputs in = random_inputs_on_gpu(e, Dtype::bf16);
    const AttentionOptions options = options_of(ctx, e);
    const int64_t before = ctx.allocator->current_bytes();
    ctx.allocator->reset_peak();
    Tape tape(ctx);
    const Var q = tape.leaf(in.q), k = tape.leaf(in.k), v = tape.leaf(in.v);
    const Var o = attention(ctx, q, k, v, options, kind);
    tape.backward(std::span(&o, 1), std::span(&in.dy, 1));
    return static_cast<double>(ctx.allocator->peak_bytes() - before);
  };
  for (int64_t length : {1536, 3072, 6144}) {
    INFO("length " << length);
    const double once = extra_bytes(length, AttentionKind::flash);
    const double twice = extra_bytes(2 * length, AttentionKind::flash);
    CHECK(once > 0.0);
    CHECK(std::abs(twice / once - 2.0) < 0.02);
  }
  // What is quadratic would be seen.
  CHECK(extra_bytes(3072, AttentionKind::composed) >
        3.5 * extra_bytes(1536, AttentionKind::composed));
}

TEST_CASE("flash attention by wgmma writes gradients into regions of any layout", "[cuda]") {
  if (!gpu_has_wgmma()) return;
  const Context& ctx = test_cuda_context();
  const auto check = [&](const Example& e, int64_t spare, int64_t step, bool accumulate) {
    INFO(e << ", spare " << spare << ", step " << step << ", accumulate " << accumulate);
    Calls<BFloat16> calls(ctx, random_inputs_on_gpu(e, Dtype::bf16), options_of(ctx, e));
    calls.run(ctx, kWgmma, kWgmma);
    // A head of padding behind those of dq, dk and dv, and a token before the first.
    const int64_t all_heads = e.heads + 2 * e.kv_heads + 1, width = e.head_dim * step + spare;
    Tensor packed = empty(ctx, {e.batch, e.queries + 1, all_heads, width}, Dtype::bf16);
    fill(ctx, packed, accumulate ? 3.0 : kNaN);
    std::vector<double> expected = as_doubles(ctx, packed);
    FlashBackward<BFloat16> call = calls.backward;
    const auto place = [&](FlashGradient& target, const Tensor& wide, int64_t first_head) {
      const Tensor to = packed.slice(1, 1, e.queries).slice(2, first_head, wide.size(2));
      target = FlashGradient{const_cast<BFloat16*>(to.data<BFloat16>()),
                             false,
                             accumulate,
                             to.stride(0),
                             to.stride(1),
                             to.stride(2),
                             step};
      const std::vector<double> values = as_doubles(ctx, wide);
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t d = i % e.head_dim, head = i / e.head_dim % wide.size(2);
        const int64_t token = i / e.head_dim / wide.size(2);
        const int64_t row = token / e.queries * (e.queries + 1) + token % e.queries + 1;
        const float x = static_cast<float>(values[i]);
        expected[(row * all_heads + first_head + head) * width + d * step] =
            static_cast<float>(BFloat16(accumulate ? 3.0f + x : x));
      }
    };
    place(call.dq, calls.dq, 0);
    place(call.dk, calls.dk, e.heads);
    place(call.dv, calls.dv, e.heads + e.kv_heads);
    wgmma_backward(Cuda{ctx}, call);
    const std::vector<double> got = as_doubles(ctx, packed);
    int wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      wrong += got[i] != expected[i] && !(std::isnan(got[i]) && std::isnan(expected[i]));
    }
    CHECK(wrong == 0);
  };
  for (int64_t head_dim : kHeadDims) {
    for (int64_t heads : {2, 4}) {
      // Rows of 16 bytes, of 2 bytes, and elements apart from each other; written and added to.
      for (int64_t spare : {8, 1}) {
        for (int64_t step : {1, 2}) {
          for (bool accumulate : {false, true}) {
            check(
                {.queries = 150, .keys = 150, .heads = heads, .kv_heads = 2, .head_dim = head_dim},
                spare, step, accumulate);
          }
        }
      }
    }
  }
}
